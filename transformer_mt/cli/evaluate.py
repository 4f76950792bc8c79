"""transformer-mt evaluate"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from transformer_mt.cli.options.evaluation_sets import (
    add_evaluation_sets,
    add_external,
    external_metrics,
    files_of_sets,
    load_evaluation_sets,
    select_by_language,
)
from transformer_mt.cli.options.flags import given
from transformer_mt.cli.options.model import add_model, add_search, load_translator
from transformer_mt.cli.options.ranks import translating_together
from transformer_mt.cli.options.references import add_references
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.messages import say

if TYPE_CHECKING:
    from transformer_mt.config import Config
    from transformer_mt.corpora.evaluation_sets import EvaluationSet
    from transformer_mt.evaluation.alignment_error import HandLinks
    from transformer_mt.evaluation.evaluate import Evaluation
    from transformer_mt.evaluation.metric import Metric
    from transformer_mt.runs.folder import RunFolder
    from transformer_mt.translation.translator import Translator

_OF_TRANSLATIONS = (
    "source", "reference", "external", "robust", "tag", "ensemble", "engine", "dtype", "glossary", "memory",
    "links", "to", "from",
)  # fmt: skip
_NOT_GIVEN: tuple[object, ...] = (None, False, [], "auto")
_ABOUT = (
    "Translate the config's test sets or the given files, and print the metrics of evaluate.metrics with "
    "signatures."
)


def add_command(commands: Any) -> None:
    parser = commands.add_parser("evaluate", help="score a model on test sets", description=_ABOUT)
    add_model(parser)
    add_evaluation_sets(parser)
    parser.add_argument(
        "--tag", metavar="TAG", help="a tag before each source (default: that of the test set in the config)"
    )
    add_references(parser)
    add_external(parser)
    parser.add_argument(
        "--links", metavar="FILE",
        help="links of the words of --source and --reference, made by hand (0-0 1?2): also print the "
        "alignment error rate",
    )  # fmt: skip
    parser.add_argument(
        "--robust", action="store_true",
        help="also score the test sets in capitals, with typos, without final marks, two sentences a line, "
        "and look at single words",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object a test set")
    add_search(parser)
    parser.show(
        sets=("--source", "--reference", "--to", "--from", "--tag"),
        scores=("--external", "--links", "--robust", "--json"),
        translation=("--glossary", "--memory", "--beam"),
        others=("--device", "--set", "--help-all"),
    )
    parser.set_defaults(command=_evaluate)


def _evaluate(arguments: argparse.Namespace) -> int:
    files_of_sets(arguments)  # refused before any work
    from transformer_mt.evaluation.metrics import metric_names
    from transformer_mt.importing.model_folder import run_of

    folder = run_of(arguments.model, vars(arguments)["from"], arguments.to)
    config = folder.config()
    if not config.data.directions:
        return _evaluate_text(arguments, folder, config)
    if arguments.links and len(arguments.source) != 1:
        raise InputError(Setting("links"), " requires one ", Setting("source"), " and ", Setting("reference"))
    external = external_metrics(arguments, metric_names(config.evaluate, config.data.target_lang))
    # Before the model is read: a training may write a better one meanwhile
    weights = folder.weights_digest()
    tests = load_evaluation_sets(arguments, folder, config)
    if not tests:
        raise InputError(f"{folder}: its config has no data.test; give --source FILE --reference FILE")
    hand = None
    if arguments.links:
        from transformer_mt.evaluation.alignment_error import read_hand_links

        hand = read_hand_links(arguments.links, len(tests[0].sentences))
    translator = load_translator(arguments, any_direction=not arguments.source)
    if arguments.source:
        tests = [replace(test, languages=(translator.source_lang, translator.target_lang)) for test in tests]
    else:
        tests = select_by_language(tests, translator.directions, arguments.to, vars(arguments)["from"])
    with translating_together(translator) as is_mine:
        if is_mine:
            _score(arguments, folder, config, translator, tests, external, weights, hand)
    return 0


def _evaluate_text(arguments: argparse.Namespace, folder: "RunFolder", config: "Config") -> int:
    """Print the scores of the test sets of a model that translates nothing, and keep them in its folder."""
    from transformer_mt.corpora.evaluation_sets import read_set
    from transformer_mt.language_models.load import LoadedModel
    from transformer_mt.language_models.scores import save_scores, text_scores

    of_translations = [name for name in _OF_TRANSLATIONS if vars(arguments)[name] not in _NOT_GIVEN]
    of_translations += [f"decode.{key}" for key in given(arguments, "decode.")]
    if of_translations:
        raise InputError(
            f"{folder}: ", Setting(of_translations[0]), " must be left out: it translates nothing"
        )
    if not config.data.test:
        raise InputError(f"{folder}: its config must have data.test to be evaluated, but has none")
    loaded = LoadedModel.load(folder.path, (config.model.kind,), arguments.device)
    for number, corpus in enumerate(config.data.test):
        sentences = read_set(corpus, config.data.languages, folder.path, "test")
        rows = [(text, target) for text, targets in sentences for target in targets]
        scores = text_scores(loaded, corpus, rows)
        save_scores(folder, f"test-{number}", corpus.describe(), len(rows), scores)
        if arguments.json:
            facts = {
                "test": f"test-{number}",
                "corpus": corpus.describe(),
                "scores": [vars(s) for s in scores],
            }
            print(json.dumps(facts, ensure_ascii=False), flush=True)
        else:
            print(f"test-{number}: {corpus.describe()}, {len(rows):,} texts")
            print("\n".join(f"  {score}" for score in scores), flush=True)
    _update_report(folder, config)
    return 0


def _score(
    arguments: argparse.Namespace,
    folder: "RunFolder",
    config: "Config",
    translator: "Translator",
    tests: "list[EvaluationSet]",
    external: "Sequence[Metric]",
    weights: str | None,
    hand: "list[HandLinks] | None" = None,
) -> None:
    """Print the scores of each set, and keep them with the model of these `weights`. `hand` are the links of
    the words of the only set.
    """
    from transformer_mt.evaluation.evaluate import evaluate
    from transformer_mt.evaluation.outputs import NOT_ITS_OWN

    is_usual_engine = arguments.engine == "auto" and arguments.dtype is None
    is_plain = is_usual_engine and not (arguments.ensemble or arguments.glossary or arguments.memory)
    is_own = is_plain and not arguments.tag
    not_saved: WorkError | None = None
    for test in tests:
        evaluation = evaluate(translator, test, config.evaluate, arguments.tag, weights if is_plain else None)
        # The report and the card of an export show only what the model alone translates in its usual way.
        kept_as = test if is_own else replace(test, name=f"{NOT_ITS_OWN}{test.name}")
        if external:
            not_saved = _save(evaluation, folder, kept_as) or not_saved  # not lost with a command that fails
            evaluation = evaluation.scored_by(external, test)
        scores = evaluation.scores
        if hand is not None:
            from transformer_mt.evaluation.alignment_error import alignment_error

            pairs = [(src, targets[0]) for src, targets in test.sentences]
            scores = [*scores, alignment_error(translator, pairs, hand)]
        if arguments.json:
            facts = {
                "test": test.name,
                "corpus": test.corpus,
                "sentences": len(test.sentences),
                "scores": [vars(s) for s in scores],
            }
            print(json.dumps(facts, ensure_ascii=False), flush=True)
        else:
            print(f"{test.name}: {test.corpus}, {len(test.sentences):,} sentences, {translator.searched}")
            print("\n".join(f"  {score}" for score in scores), flush=True)
        not_saved = _save(evaluation, folder, kept_as) or not_saved
    is_usual = is_own and translator.decode == config.decode
    of_own_sets = is_usual and not (arguments.source or arguments.to or vars(arguments)["from"])
    keeps = weights if of_own_sets and not not_saved else None
    try:
        if arguments.robust:
            _test_robustness(arguments, folder, config, translator, tests, keeps)
        if is_usual:
            try:
                _compare_with_parent(arguments, config, tests, keeps)
            except (InputError, WorkError) as error:  # the parent, or its test sets, may be out of reach
                say(f"no comparison with {config.init_from}: {error}")
    finally:  # the scores are there, even if a table failed
        if not not_saved:
            _update_report(folder, config)
    if not_saved:  # at the end: the folder of a shared model may be read-only
        raise not_saved


def _save(evaluation: "Evaluation", folder: "RunFolder", test: "EvaluationSet") -> WorkError | None:
    """Keep it in the run's folder; the error if that takes no files."""
    try:
        evaluation.save(folder, test)
    except WorkError as error:
        return error
    return None


def _test_robustness(
    arguments: argparse.Namespace,
    folder: "RunFolder",
    config: "Config",
    translator: "Translator",
    tests: "list[EvaluationSet]",
    weights: str | None,
) -> None:
    """Print the table of the test sets as people also write, and keep it with the run's model of these
    `weights`, if they are given.
    """
    from transformer_mt.evaluation import robustness
    from transformer_mt.evaluation.outputs import keep_table

    rows = [
        row
        for test in tests
        for row in robustness.measure(translator, test, config.evaluate, arguments.tag or test.tag)
    ]
    if arguments.json:
        for row in rows:
            print(json.dumps(row.facts(), ensure_ascii=False), flush=True)
    else:
        print(f"\n{robustness.as_table(rows)}", end="", flush=True)
    if weights:
        keep_table(folder, robustness.ROBUSTNESS_FILE, robustness.as_table(rows), weights)


def _compare_with_parent(
    arguments: argparse.Namespace, config: "Config", tests: "list[EvaluationSet]", weights: str | None
) -> None:
    """Gain and forgetting of a fine-tuned model, on these test sets and on its parent's. The
    table is printed, and kept with the run's model of these `weights`, if they are given.
    """
    from transformer_mt.config.public_model import Halves
    from transformer_mt.corpora.scored_sentences import ScoredSentences
    from transformer_mt.evaluation import fine_tuning
    from transformer_mt.evaluation.comparison import System, compare
    from transformer_mt.evaluation.metrics import metrics_by_test
    from transformer_mt.evaluation.outputs import keep_table
    from transformer_mt.evaluation.translated import translated
    from transformer_mt.importing.model_folder import parent_of, run_of
    from transformer_mt.translation.direction import can_translate

    folder = run_of(arguments.model, vars(arguments)["from"], arguments.to)
    expected = folder.weights_of_parent()
    is_silent = arguments.json and not weights
    if config.init_from is None or isinstance(config.init_from, Halves) or expected is None or is_silent:
        return
    parent = parent_of(config)
    # What a student began with is no model of its own
    if parent.path.parent.resolve() == folder.path.resolve() or not parent.config().data.directions:
        return
    if parent.weights_digest() != expected:
        say(f"no comparison with {parent}: the weights that this model began with are not at this path")
        return
    if not (arguments.source or arguments.to or vars(arguments)["from"]):
        of_parent = load_evaluation_sets(arguments, parent, parent.config())
        known = [(test.languages, test.sentences) for test in tests]
        new = [test for test in of_parent if (test.languages, test.sentences) not in known]
        tests = [*tests, *(replace(test, name=f"parent-{test.name}") for test in new)]
    both = [parent.config().data, config.data]
    for test in list(tests):
        if test.languages and not all(
            can_translate(data.directions, data.has_language_pieces, test.languages) for data in both
        ):
            say(f"{test.corpus}: not both of {parent} and {folder} translate it: no comparison")
            tests.remove(test)
    if not tests:
        return
    systems = [System(str(run), [translated(run, tests, arguments.device)]) for run in (parent, folder)]
    comparison = compare(tests, systems, metrics_by_test(config.evaluate, config.data.target_lang))
    scored = ScoredSentences.read(folder.scored_file)
    is_unknown = scored is None or scored.inherited is None
    maybe_seen = [test.name for test in tests if is_unknown and test.name.startswith("parent-")]
    table = fine_tuning.before_and_after(comparison, maybe_seen)
    if not arguments.json:
        print(f"\n{table}", end="", flush=True)
    if weights:
        keep_table(folder, fine_tuning.FINE_TUNING_FILE, table, weights)


def _update_report(folder: "RunFolder", config: "Config") -> None:
    """Write the scores into the report of the run, if the folder is that of a run."""
    if folder.metrics_file.exists():
        from transformer_mt.training.reporting.report import write_report

        write_report(folder, config)
