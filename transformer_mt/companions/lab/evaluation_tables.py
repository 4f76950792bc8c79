"""The tables that `evaluate` adds: robustness to how people write, gain and forgetting of a fine-tuning."""

import argparse
from collections.abc import Sequence
from dataclasses import replace

from transformer_mt.cli.arguments import Parser
from transformer_mt.cli.model_options import load_evaluation_sets
from transformer_mt.config.root import Halves
from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.errors import InputError, WorkError
from transformer_mt.evaluation.set_evaluation import RunEvaluation
from transformer_mt.files import to_json
from transformer_mt.messages import say
from transformer_mt.run_folder import parent_of


def add_options(parser: Parser) -> None:
    """The option --robust of `evaluate`."""
    parser.add_argument(
        "--robust", action="store_true",
        help="also score the test sets in capitals, with typos, without final marks, two sentences a line, "
        "and check single words",
    )  # fmt: skip
    scores = parser.shown["scores"]
    parser.shown["scores"] = (*scores[:-1], "--robust", *scores[-1:])


def after_evaluation(
    arguments: argparse.Namespace, evaluation: RunEvaluation, tests: Sequence[EvaluationSet]
) -> None:
    """Print the tables; those of a run's own test sets are kept in its folder."""
    is_kept = evaluation.is_usual and not _names_sets(arguments)
    if arguments.robust:
        _print_robustness(evaluation, tests, is_kept, arguments.json)
    if evaluation.is_usual:
        try:
            _compare_with_parent(arguments, evaluation, tests, is_kept)
        except (InputError, WorkError) as error:  # the parent, or its test sets, may be out of reach
            say(f"no comparison with {evaluation.config.init_from}: {error}")


def _names_sets(arguments: argparse.Namespace) -> bool:
    """True if the test sets are not all of those in the config."""
    return bool(arguments.source or arguments.to or vars(arguments)["from"])


def _print_robustness(
    evaluation: RunEvaluation, tests: Sequence[EvaluationSet], is_kept: bool, as_json: bool
) -> None:
    from transformer_mt.companions.lab.robustness import NoiseRow, as_table, measure

    rows: list[NoiseRow] = []
    for test in tests:
        if seen := evaluation.record.share(test).in_words:
            test = replace(test, corpus=f"{test.corpus} ({seen})")
        tag = evaluation.tag or test.tag
        rows += measure(evaluation.translator, test, evaluation.config.evaluate, tag)
    if is_kept:
        evaluation.keep_table("robust.md", "Robustness to how people write", as_table(rows))
    if as_json:
        for row in rows:
            print(to_json(row.facts(), ensure_ascii=False), flush=True)
    else:
        print(f"\n{as_table(rows)}", end="", flush=True)


def _compare_with_parent(
    arguments: argparse.Namespace, evaluation: RunEvaluation, tests: Sequence[EvaluationSet], is_kept: bool
) -> None:
    """Print the gain and the forgetting of a fine-tuned model, on these test sets and on its parent's."""
    from transformer_mt.companions.lab.backtranslation_chain import OF_PARENT, gain_and_forgetting

    config, expected = evaluation.config, evaluation.folder.weights_of_parent()
    is_silent = arguments.json and not is_kept
    if config.init_from is None or isinstance(config.init_from, Halves) or expected is None or is_silent:
        return
    parent = parent_of(config)
    # What a student began with is no model of its own
    is_inside = parent.path.parent.resolve() == evaluation.folder.path.resolve()
    if is_inside or not parent.config().data.directions:
        return
    if parent.weights_digest() != expected:
        say(f"no comparison with {parent}: its weights are not those that this model started from")
        return
    if not _names_sets(arguments):
        of_parent = load_evaluation_sets(arguments, parent, parent.config())
        known = [(test.languages, test.sentences) for test in tests]
        new = [test for test in of_parent if (test.languages, test.sentences) not in known]
        tests = [*tests, *(replace(test, name=f"{OF_PARENT}{test.name}") for test in new)]
    table = gain_and_forgetting(parent, evaluation.folder, tests, arguments.device)
    if table and is_kept:
        evaluation.keep_table("fine_tuning.md", "Gained and forgotten by fine-tuning", table)
    if table and not arguments.json:
        print(f"\n{table}", end="", flush=True)
