"""Translate a test set, score it, and keep both with the model."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from transformer_mt.config import EvaluateConfig
from transformer_mt.corpora.evaluation_sets import EvaluationSet
from transformer_mt.errors import WorkError
from transformer_mt.evaluation.metric import Metric, Score
from transformer_mt.evaluation.metrics import build_metrics, corpus_scores, tokenised_note
from transformer_mt.evaluation.seen_share import SeenShare
from transformer_mt.evaluation.set_notes import notes_on_set
from transformer_mt.evaluation.term_rate import term_rates
from transformer_mt.files import digest, to_json, write_text
from transformer_mt.messages import say
from transformer_mt.progress_bar import show_progress
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.expected_quality import Expected, ExpectedQuality
from transformer_mt.translation.result import Options
from transformer_mt.translation.translator import Translator
from transformer_mt.version import RESULTS

_SHOWN_PROBLEMS = 10
"""Problems of a test set that are shown; a model that has learnt little has one in many lines."""


@dataclass(frozen=True)
class Evaluation:
    """A translated and scored test set."""

    scores: list[Score]
    rows: list[dict[str, Any]]
    """For each sentence its source, reference (or list of references), translation and the translation's
    score.
    """
    search: str
    """The search in a few words."""
    decode: dict[str, Any]
    """The settings of the search."""
    tag: str | None
    """Before each source."""
    languages: tuple[str, str]
    """Source and target, as the test set calls them."""
    weights: str | None
    """A digest of the model's; None where something other than this model alone translated, in float32 or as
    it was exported.
    """
    expected: Expected | None = None
    """The chrF that the model's own confidence, without the references, lets expect."""
    withheld: str | None = None
    """Why none is expected, though the translations have a confidence."""
    seen: SeenShare | None = None
    """The part of the set that is known to what translated."""

    def scored_by(self, metrics: Sequence[Metric], test: EvaluationSet) -> "Evaluation":
        """The same with the scores of further metrics."""
        translations = [row["translation"] for row in self.rows]
        more = corpus_scores(metrics, test.sources, translations, test.references)
        return replace(self, scores=[*self.scores, *more])

    def save(self, folder: RunFolder, test: EvaluationSet) -> None:
        """Write the rows and the scores into the folder. WorkError where it takes none."""
        rows = "".join(to_json(row, ensure_ascii=False) + "\n" for row in self.rows)
        scores = [asdict(score) for score in self.scores]
        summary = {
            "corpus": test.corpus, "sentences": len(self.rows), "search": self.search, "scores": scores,
            "decode": self.decode, "tag": self.tag, "languages": self.languages, "weights": self.weights,
            "results": RESULTS, "seen": self.seen.to_keep if self.seen else "",
        }  # fmt: skip
        try:
            folder.evaluation.mkdir(parents=True, exist_ok=True)
            write_text(file := folder.translations_file(test.name), rows)
            summary["rows"] = digest(file)
            write_text(folder.scores_file(test.name), to_json(summary, indent=1) + "\n")
        except OSError as error:
            raise WorkError(
                f"{folder.evaluation}: the translations could not be written: {error.strerror}; free some "
                "space or check the folder's rights"
            ) from None


def evaluate(
    translator: Translator,
    test: EvaluationSet,
    rules: EvaluateConfig,
    tag: str | None = None,
    weights: str | None = None,
) -> Evaluation:
    """The metrics of `evaluate.metrics` of the translator on a test set. `tag` is used instead of the test
    set's; `weights` are kept with the result.
    """
    if test.languages:
        translator = translator.for_set(test.languages)
    metrics = build_metrics(rules, translator.target_lang)  # before any work
    tag = tag or test.tag
    sources, references = test.sources, test.references
    stream = translator.stream(sources, Options(tag=tag))
    results = list(show_progress(stream, "translating", len(sources), unit="sentences"))
    problems = [
        f"line {number}: {problem}"
        for number, result in enumerate(results, start=1)
        for problem in result.problems
    ]
    for problem in problems[:_SHOWN_PROBLEMS]:
        say(problem)
    if len(problems) > _SHOWN_PROBLEMS:
        say(f"and {len(problems) - _SHOWN_PROBLEMS:,} more such lines")
    quality = ExpectedQuality(translator.resources.calibration)
    for result in results:
        quality.add(result)
    translations = [result.translation for result in results]
    scores = corpus_scores(metrics, sources, translations, references)
    languages = translator.source_lang, translator.target_lang
    if glossary := translator.resources.of(languages).glossary:
        scores += term_rates(glossary, sources, translations, references)
    for note in notes_on_set(test, (translator.source_lang, translator.target_lang)):
        say(note)
    if tokenised := tokenised_note([targets[0] for targets in references], rules.tokenize):
        say(tokenised)
    rows = [
        {
            "source": src,
            **({"reference": targets[0]} if len(targets) == 1 else {"references": list(targets)}),
            "translation": result.translation,
            "score": result.score,
        }
        for (src, targets), result in zip(test.sentences, results)
    ]
    languages = test.languages or languages
    decode = translator.decode.model_dump(mode="json")
    search = translator.decode.in_words
    expected, withheld = quality.expected, quality.withheld
    return Evaluation(scores, rows, search, decode, tag, languages, weights, expected, withheld)
