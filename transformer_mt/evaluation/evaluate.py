"""Translate a test set, score it, and keep both with the model."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformer_mt.config import Config
from transformer_mt.data.corpus import Pair
from transformer_mt.errors import WorkError
from transformer_mt.evaluation.metrics import Score, corpus_scores, tokenised_note
from transformer_mt.files import write_text
from transformer_mt.progress_bar import show_progress
from transformer_mt.translation.result import Options
from transformer_mt.translation.translator import Translator


@dataclass(frozen=True)
class Evaluation:
    """A translated and scored test set."""

    scores: list[Score]
    rows: list[dict[str, Any]]
    """Of each pair its source, reference, translation and the translation's score."""
    search: str
    """The search in a few words."""
    decode: dict[str, Any]
    """The settings of the search."""

    def save(self, place: Path, corpus: str) -> None:
        """Write PLACE.jsonl (the rows) and PLACE.scores.json. WorkError where the folder takes none. `corpus`
        is the test set in a few words.
        """
        rows = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in self.rows)
        scores = [asdict(score) for score in self.scores]
        summary = {
            "corpus": corpus, "sentences": len(self.rows), "search": self.search, "scores": scores,
            "decode": self.decode,
        }  # fmt: skip
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_text(place.with_name(f"{place.name}.jsonl"), rows)
            write_text(place.with_name(f"{place.name}.scores.json"), json.dumps(summary, indent=1) + "\n")
        except OSError as error:
            raise WorkError(
                f"{place.parent}: the translations could not be written: {error.strerror}; free some space "
                "or check the folder's rights"
            ) from None


def evaluate(
    translator: Translator,
    pairs: Sequence[Pair],
    config: Config,
    say: Callable[[str], None],
    tag: str | None = None,
) -> Evaluation:
    """BLEU, chrF and TER of the translator on `pairs`, whose sources come after the `tag`."""
    stream = translator.stream([src for src, _ in pairs], Options(tag=tag))
    results = list(show_progress(stream, "translating", len(pairs), unit="sentences"))
    for number, result in enumerate(results, start=1):
        for problem in result.problems:
            say(f"line {number}: {problem}")
    references = [reference for _, reference in pairs]
    settings = config.evaluate
    scores = corpus_scores(
        [r.translation for r in results],
        references,
        config.data.target_lang,
        settings.tokenize,
        settings.lowercase,
    )
    if note := tokenised_note(references, settings.tokenize):
        say(note)
    rows = [
        {"source": src, "reference": reference, "translation": result.translation, "score": result.score}
        for (src, reference), result in zip(pairs, results)
    ]
    return Evaluation(scores, rows, translator.searched, translator.decode.model_dump())
