"""`transformer-mt evaluate` and `score`: the lines that they print; companions add tables."""

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from transformer_mt.cli.arguments import Parser
from transformer_mt.cli.model_options import (
    ModelRequest,
    add_evaluation_sets,
    add_external,
    add_model,
    add_resources,
    add_search,
    external_metrics,
    files_of_sets,
    load_evaluation_sets,
    load_translator,
    select_by_language,
    translating_together,
)
from transformer_mt.companion import hooks
from transformer_mt.errors import InputError, Setting
from transformer_mt.files import to_json
from transformer_mt.messages import say

if TYPE_CHECKING:
    from transformer_mt.config import Config
    from transformer_mt.corpora.held_out import EvaluationSet
    from transformer_mt.evaluation.metrics import Metric, Score
    from transformer_mt.evaluation.scoring import Expected
    from transformer_mt.evaluation.set_evaluation import HandLinks, RunEvaluation, SeenShare
    from transformer_mt.run_folder import RunFolder

_ABOUT = (
    "Translate the config's test sets or the given files, and print the metrics of evaluate.metrics with "
    "signatures."
)


def add_arguments(parser: Parser) -> None:
    parser.description = _ABOUT
    add_model(parser)
    add_evaluation_sets(parser)
    parser.add_argument(
        "--tag", metavar="TAG", help="a tag before each source (default: that of the test set in the config)"
    )
    add_external(parser)
    parser.add_argument(
        "--links", metavar="FILE",
        help="manual word alignments of --source and --reference (0-0 1?2): also print the "
        "alignment error rate",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="a JSON object per test set")
    add_search(parser)
    # Added last: if a resource's option has the name of another option, the resource is left out.
    resources = add_resources(parser)
    parser.show(
        sets=("--source", "--reference", "--to", "--from", "--tag"),
        scores=("--external", "--links", "--json"),
        translation=(*resources, "--beam"),
        others=("--device", "--set", "--help-all"),
    )
    parser.set_defaults(command=_evaluate)


def _evaluate(arguments: argparse.Namespace) -> int:
    files_of_sets(arguments)  # refused before any work
    from transformer_mt.evaluation.metrics import metric_names
    from transformer_mt.evaluation.set_evaluation import RunEvaluation

    request = ModelRequest.of(arguments)
    folder = request.run()
    config = folder.config()
    if not config.data.directions:
        for evaluate_text in hooks("evaluate_text"):
            evaluate_text(arguments, folder, config)
            return 0
        raise InputError(
            f"{folder}: this model does not translate; scoring texts requires the companion language_models"
        )
    if arguments.links and len(arguments.source) != 1:
        raise InputError(Setting("links"), " requires one ", Setting("source"), " and ", Setting("reference"))
    external = external_metrics(arguments, metric_names(config.evaluate, config.data.target_lang))
    # Hash the weights before the model is loaded: a running training may replace them meanwhile.
    weights = folder.weights_digest()
    tests = load_evaluation_sets(arguments, folder, config)
    if not tests:
        raise InputError(f"{folder}: its config has no data.test; give --source FILE --reference FILE")
    hand = None
    if arguments.links:
        from transformer_mt.evaluation.set_evaluation import read_hand_links

        hand = read_hand_links(arguments.links, len(tests[0].sentences))
    translator = load_translator(request, any_direction=not arguments.source)
    if arguments.source:
        tests = [replace(test, languages=(translator.source_lang, translator.target_lang)) for test in tests]
    else:
        tests = select_by_language(tests, translator.directions, arguments.to, vars(arguments)["from"])
    with translating_together(translator) as leading:
        if leading is not None:
            others, is_usual = request.other_runs(), request.is_usual
            run = RunEvaluation(folder, config, leading, weights, arguments.tag, others, is_usual)
            _score(arguments, run, tests, external, hand)
    return 0


def _score(
    arguments: argparse.Namespace,
    run: "RunEvaluation",
    tests: "list[EvaluationSet]",
    external: "Sequence[Metric]",
    hand: "list[HandLinks] | None",
) -> None:
    """Print the scores of each test set, then run the hooks that print further tables."""
    for test, evaluation in run.evaluations(tests, external, hand):
        what = f"{test.title}, {evaluation.search}, by {run.translator.engine_in_words}"
        without = evaluation.expected, evaluation.withheld
        print_scores(arguments, test, evaluation.seen, evaluation.scores, what, *without)
    try:
        for after_evaluation in hooks("after_evaluation"):
            after_evaluation(arguments, run, tests)
    finally:  # the scores are there, even if a table failed
        if not run.not_saved:
            update_report(run.folder, run.config)
    if run.not_saved:  # at the end: the folder of a shared model may be read-only
        raise run.not_saved


def print_scores(
    arguments: argparse.Namespace,
    test: "EvaluationSet",
    seen: "SeenShare | None",
    scores: "Sequence[Score]",
    what: str,
    expected: "Expected | None" = None,
    withheld: str | None = None,
) -> None:
    """Print the scores of a set. `what` describes the evaluation, `expected` is the chrF estimated from
    the model's confidence, and `withheld` says why there is no estimate.
    """
    if arguments.json:
        facts = {
            "test": test.name,
            "corpus": test.corpus,
            "sentences": len(test.sentences),
            "seen": seen and vars(seen),
            "scores": [vars(score) for score in scores],
            "expected": expected and vars(expected),
            **({"withheld": withheld} if withheld else {}),
        }
        print(to_json(facts, ensure_ascii=False), flush=True)
    else:
        lines = [f"{test.name}: {what}"]
        lines += [seen.in_words] if seen and seen.count else []
        lines += map(str, scores)
        lines += [f"{expected} by the model's confidence alone"] if expected else []
        lines += [withheld] if withheld else []
        print("\n  ".join(lines), flush=True)


def update_report(folder: "RunFolder", config: "Config") -> None:
    """Write the scores into the report of the run, if the folder is that of a run."""
    if folder.metrics_file.exists():
        from transformer_mt.run.report import write_report

        write_report(folder, config)


_ABOUT_SCORE = (
    "Print the probability of each target line as a translation of its source line, as "
    "LOG_PROB<tab>SCORE<tab>TARGET, and finally, on stderr, the overall perplexity."
)

# Pairs scored together.
_CHUNK = 1024


def add_score(parser: Parser) -> None:
    parser.description = _ABOUT_SCORE
    add_model(parser)
    parser.add_argument("--source", metavar="FILE", help="sentences, one per line; may be compressed")
    parser.add_argument("--target", metavar="FILE", help="their translations, one per line")
    parser.add_argument(
        "--translations",
        metavar="FILE",
        help="instead of both: output of translate --json, scored in its own tokens",
    )
    parser.add_argument(
        "--tag", metavar="TAG", help="a tag before each sentence of --source, as for translate"
    )
    parser.add_argument(
        "--length-penalty", metavar="X", type=float, dest="decode.length_penalty",
        help="length penalty of the score (default: the config's)",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="a JSON object per line, with each token's log-probability"
    )
    parser.set_defaults(command=_score_given)


def _score_given(arguments: argparse.Namespace) -> int:
    from transformer_mt.evaluation.scoring import pairs_of_files, pairs_of_json, score

    if arguments.translations and (arguments.source or arguments.target):
        raise InputError("give --translations, or --source and --target, not both")
    if arguments.translations and arguments.tag:
        raise InputError("--tag requires --source; output of translate has its own")
    if not arguments.translations and not (arguments.source and arguments.target):
        raise InputError("--source FILE and --target FILE must be given, or --translations FILE")
    translator = load_translator(ModelRequest.of(arguments))
    if arguments.translations:
        pairs = pairs_of_json(translator, arguments.translations, _CHUNK)
    else:
        pairs = pairs_of_files(translator, arguments.source, arguments.target, _CHUNK, arguments.tag)
    total, tokens, lines = 0.0, 0, 0
    for chunk in pairs:
        for result in score(translator, chunk):
            lines += 1
            total += result.log_prob
            tokens += len(result.token_log_probs)
            if arguments.json:
                print(to_json({"line": lines, **vars(result), "ppl": result.ppl}, ensure_ascii=False))
            else:
                print(f"{result.log_prob:.4f}\t{result.score:.4f}\t{result.target}")
    if tokens:
        say(
            f"{lines:,} lines, {tokens:,} tokens, log P {total:.2f}, perplexity "
            f"{math.exp(-total / tokens):.4f}"
        )
    return 0
