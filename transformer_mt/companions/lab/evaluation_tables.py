"""The tables that `evaluate` adds: robustness to how people write, gain and forgetting of a fine-tuning."""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

from transformer_mt.cli.arguments import Parser
from transformer_mt.cli.model_options import load_evaluation_sets
from transformer_mt.companions.lab.comparison import Cell, Comparison, System, compare
from transformer_mt.companions.lab.translated import translated
from transformer_mt.config import EvaluateConfig
from transformer_mt.config.root import Halves
from transformer_mt.corpora.corpus import EvaluationSentence
from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.errors import InputError, WorkError
from transformer_mt.evaluation.metrics import Score, build_metrics, corpus_scores, metrics_by_test
from transformer_mt.evaluation.set_evaluation import SEEN_NOTE, RunEvaluation, SystemRecord
from transformer_mt.files import to_json
from transformer_mt.messages import say, table, with_names
from transformer_mt.run_folder import RunFolder, parent_of
from transformer_mt.text.languages import joined
from transformer_mt.text.text_changes import NoFinalMark, TextChange, TitleCase, Typos, UpperCase
from transformer_mt.translation.planner import can_translate
from transformer_mt.translation.result import Options
from transformer_mt.translator import Translator

OF_PARENT = "parent-"
"""Prefix of the names of the parent's test sets."""
_SIGNIFICANT = 0.05

_MOST_WORDS = 200
_COUNTED_FLAGS = {"copied", "repeating", "length_ratio", "truncated", "no_hypothesis"}


@dataclass(frozen=True)
class NoiseRow:
    """A test set in one form."""

    corpus: str
    form: str
    """How it is written."""
    sentences: int
    scores: list[Score]
    """Empty for single words, which have no references."""
    suspicious: float
    """The share of the translations that repeat themselves, copy, were cut, or are much too long or short."""

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "scores": [vars(score) for score in self.scores]}


def measure(
    translator: Translator, test: EvaluationSet, rules: EvaluateConfig, tag: str | None
) -> Iterator[NoiseRow]:
    """The scores of the test set as it is, and in each form."""
    if test.languages:
        translator = translator.for_set(test.languages)
    metrics = build_metrics(rules, translator.target_lang)
    languages = translator.source_lang, translator.target_lang
    for form, sentences in forms(test, languages).items():
        say(f"{test.corpus}, {form}: {len(sentences):,} lines")
        sources, references = [src for src, _ in sentences], [targets for _, targets in sentences]
        results = list(translator.stream(sources, Options(tag=tag)))
        translations = [result.translation for result in results]
        scores = corpus_scores(metrics, sources, translations, references) if all(references) else []
        wrong = sum(bool(_COUNTED_FLAGS & set(result.flags)) for result in results)
        yield NoiseRow(test.corpus, form, len(sentences), scores, wrong / max(1, len(results)))


def forms(test: EvaluationSet, languages: tuple[str, str]) -> dict[str, list[EvaluationSentence]]:
    """Returns the test set as it is and in forms that real input takes, keyed by the name of the form. Single
    words have no references. A form that changes nothing is left out; for a form that changes fewer than half
    of the sentences, a note says how many.
    """
    sentences_of = {"as it is": test.sentences}
    changes: dict[str, TextChange] = {
        "in capitals": UpperCase(languages),
        "in title case": TitleCase(languages),
        "with typos": Typos(),
        "without final mark": NoFinalMark(languages),
    }
    for name, change in changes.items():
        changed = [_changed(change, sentence, number) for number, sentence in enumerate(test.sentences)]
        count = sum(one != other for one, other in zip(changed, test.sentences))
        if count:
            sentences_of[name] = changed
        if 2 * count < len(changed):
            say(f"note: {test.corpus}: {count:,} of {len(changed):,} sentences differ {name}")
    sentences_of["two sentences a line"] = [
        _joined(first, second) for first, second in zip(test.sentences[::2], test.sentences[1::2])
    ]
    sentences_of["single words"] = [(word, ()) for word in _words(test)]
    return {name: sentences for name, sentences in sentences_of.items() if sentences}


def _changed(change: TextChange, sentence: EvaluationSentence, number: int) -> EvaluationSentence:
    src, references = sentence
    changed = [change(src, reference, Random(number)) for reference in references]
    return changed[0][0], tuple(reference for _, reference in changed)


def _joined(first: EvaluationSentence, second: EvaluationSentence) -> EvaluationSentence:
    return joined(first[0], second[0]), tuple(joined(*pair) for pair in zip(first[1], second[1]))


def _words(test: EvaluationSet) -> list[str]:
    """The most frequent words of the sources, without marks."""
    words = (word.strip("\"'.,;:!?()") for src in test.sources for word in src.split())
    counts = Counter(word for word in words if word.isalpha() and len(word) > 1)
    return [word for word, _ in counts.most_common(_MOST_WORDS)]


def as_table(rows: list[NoiseRow]) -> str:
    """A Markdown table, and what its columns are."""
    names = list(dict.fromkeys(score.name for row in rows for score in row.scores))
    cells = []
    for row in rows:
        values = {score.name: f"{score.value:.{score.digits}f}" for score in row.scores}
        shown = [values.get(name, "") for name in names]
        cells.append([row.corpus, row.form, f"{row.sentences:,}", *shown, f"{row.suspicious:.1%}"])
    head = ["test set", "written", "lines", *names, "suspicious"]
    return (
        f"{table(cells, head)}\n\n- Capitals, title case and missing final marks apply to references, too.\n"
        "- suspicious: translations that repeat themselves, copy, were cut, or are much too long or short\n"
    )


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
    """Print the tables. A run's folder also keeps them if its own search translated all of its test sets."""
    is_kept = evaluation.is_usual and not _names_sets(arguments)
    if arguments.robust:
        _print_robustness(evaluation, tests, is_kept, arguments.json)
    if evaluation.is_usual:
        try:
            _compare_with_parent(arguments, evaluation, tests, is_kept)
        except (InputError, WorkError) as error:  # the parent, or its test sets, may be out of reach
            say(f"no comparison with {evaluation.config.init_from}: {error}")


def _names_sets(arguments: argparse.Namespace) -> bool:
    """True if the command line chooses the test sets, so that they may not be all those of the config."""
    return bool(arguments.source or arguments.to or vars(arguments)["from"])


def _print_robustness(
    evaluation: RunEvaluation, tests: Sequence[EvaluationSet], is_kept: bool, as_json: bool
) -> None:
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
    config, expected = evaluation.config, evaluation.folder.weights_of_parent()
    is_silent = arguments.json and not is_kept
    if config.init_from is None or isinstance(config.init_from, Halves) or expected is None or is_silent:
        return
    parent = parent_of(config)
    # A student starts from weights in its own folder; they are not a model to compare it with.
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


def gain_and_forgetting(
    parent: RunFolder, child: RunFolder, tests: Sequence[EvaluationSet], device: str
) -> str:
    """A table that compares both runs on the test sets that both can translate; empty if there are none."""
    configs = [run.config() for run in (parent, child)]
    common = []
    for test in tests:
        if not test.languages or all(
            can_translate(config.data.directions, config.data.has_language_pieces, test.languages)
            for config in configs
        ):
            common.append(test)
        else:
            say(f"{test.corpus}: no comparison: {parent} or {child} cannot translate it")
    if not common:
        return ""
    systems = []
    for run in (parent, child):
        record = SystemRecord([run])
        seen = tuple(record.share(test) for test in common)
        search = run.config().decode.in_words
        systems.append(System(str(run), [translated(run, common, device)], seen, search))
    rules, target_lang = configs[1].evaluate, configs[1].data.target_lang
    return before_and_after(compare(common, systems, metrics_by_test(rules, target_lang)))


def before_and_after(comparison: Comparison) -> str:
    """A Markdown table of a comparison of two systems, the parent first."""
    before, after = (system.name for system in comparison.systems)
    rows = []
    for test in comparison.tests:
        seen = [" / ".join(comparison.seen(test.name, name) for name in (before, after))]
        for metric in comparison.metrics:
            old = comparison.cell(test.name, before, metric.name)
            new = comparison.cell(test.name, after, metric.name)
            change, of_parent = new.value - old.value, test.name.startswith(OF_PARENT)
            rows.append(
                [
                    (replace(test, corpus=f"{test.corpus} of {before}") if of_parent else test).title,
                    *(seen if comparison.is_marked else []), metric.name,
                    f"{old.value:.{metric.digits}f}", f"{new.value:.{metric.digits}f}",
                    f"{change:+.{metric.digits}f}", f"{new.p:.3f}",
                    _in_a_word(change, new, metric.higher_is_better, of_parent),
                ]
            )  # fmt: skip
    marks = ["seen before / after"] if comparison.is_marked else []
    head = ["test set", *marks, "metric", "before", "after", "change", "p", ""]
    return (
        f"{table(rows, head)}\n\n- before: {before}\n"
        f"- p: paired bootstrap resampling, {comparison.samples:,} samples\n"
        + f"- search: {with_names((system.name, system.search) for system in comparison.systems)}\n"
        + (f"- {SEEN_NOTE}\n" if comparison.is_marked else "")
    )


def _in_a_word(change: float, cell: Cell, higher_is_better: bool | None, of_parent: bool) -> str:
    if cell.p is None or cell.p >= _SIGNIFICANT:
        return "no clear change"
    if higher_is_better is None:
        return "changed"
    if (change > 0) == higher_is_better:
        return "gained"
    return "forgotten" if of_parent else "lost"
