"""transformer-mt evaluate"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt.cli.console import say
from transformer_mt.cli.model import add_model, add_search, load_translator
from transformer_mt.errors import InputError

if TYPE_CHECKING:
    from transformer_mt.config import Config
    from transformer_mt.config.corpus import FromTrainCorpus, Readable

_ABOUT = "Translate the config's test sets or the given files, and print BLEU, chrF and TER with signatures."


def add_command(commands: Any) -> None:
    parser = commands.add_parser("evaluate", help="score a model on test sets", description=_ABOUT)
    add_model(parser)
    parser.add_argument(
        "--source", metavar="FILE", action="append", default=[], help="sentences to translate, one per line"
    )
    parser.add_argument(
        "--reference", metavar="FILE", action="append", default=[], help="their references, one per line"
    )
    parser.add_argument(
        "--tag", metavar="TAG", help="a tag before each source (default: that of the test set in the config)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a test set")
    add_search(parser)
    parser.set_defaults(command=_evaluate)


def _evaluate(arguments: argparse.Namespace) -> int:
    if len(arguments.source) != len(arguments.reference):
        raise InputError(
            f"each --source needs a --reference, but there are {len(arguments.source)} and "
            f"{len(arguments.reference)}"
        )
    from transformer_mt.config.corpus import FilesCorpus
    from transformer_mt.data.held_out import describe_set, read_set
    from transformer_mt.evaluation.evaluate import evaluate
    from transformer_mt.translation.model_folder import load_run_config

    folder = Path(arguments.model)
    config = load_run_config(folder)
    sets: dict[str, Readable | FromTrainCorpus] = {
        f"test-{i}": corpus for i, corpus in enumerate(config.data.test)
    }
    if arguments.source:
        files = zip(arguments.source, arguments.reference)
        sets = {
            f"{i}-{Path(src).name}": FilesCorpus(source=src, target=ref) for i, (src, ref) in enumerate(files)
        }
    if not sets:
        raise InputError(f"{folder}: its config has no data.test; give --source FILE --reference FILE")
    # Before any work
    corpora = {name: list(read_set(corpus, config.data, folder, "test")) for name, corpus in sets.items()}
    translator = load_translator(arguments)
    for name, corpus in sets.items():
        tag = arguments.tag or corpus.tag
        evaluation = evaluate(translator, corpora[name], config, say, tag)
        scores = evaluation.scores
        if arguments.json:
            facts = {
                "test": name,
                "corpus": describe_set(corpus),
                "sentences": len(corpora[name]),
                "scores": [vars(s) for s in scores],
            }
            print(json.dumps(facts, ensure_ascii=False), flush=True)
        else:
            print(f"{name}: {describe_set(corpus)}, {len(corpora[name]):,} sentences, {translator.searched}")
            print("\n".join(f"  {score}" for score in scores), flush=True)
        # After the scores are printed: the folder of a shared model may be read-only
        evaluation.save(folder / "evaluation" / name, describe_set(corpus))
    _update_report(folder, config)
    return 0


def _update_report(folder: Path, config: "Config") -> None:
    """Write the scores into the report of the run, if the folder is that of a run."""
    metrics = folder / "metrics.jsonl"
    if metrics.exists():
        from transformer_mt.files import read_objects
        from transformer_mt.training.report import write_report

        write_report(folder, config, read_objects(metrics), say)
