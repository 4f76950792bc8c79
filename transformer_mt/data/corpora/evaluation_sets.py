"""Validation and test sets as they are scored: sentences with one or several references."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.data.corpora.held_out import AnySet, FromTrainCorpus, read_held_out
from transformer_mt.data.corpora.kind import EvaluationSentence, Languages


@dataclass(frozen=True)
class EvaluationSet:
    """Sentences with their references."""

    name: str
    """The name of its files in a run's folder."""
    corpus: str
    """The set in a few words."""
    sentences: list[EvaluationSentence]
    tag: str | None = None
    """Before each source."""
    languages: Languages | None = None
    """Source and target; None where the model's own are meant."""
    documents: list[int] | None = None
    """The number of each sentence's document; None where sentences do not belong together."""

    @property
    def sources(self) -> list[str]:
        return [src for src, _ in self.sentences]

    @property
    def documents_digest(self) -> str | None:
        """A digest of `documents`, on which the translations of a model that reads them depend."""
        if self.documents is None:
            return None
        return hashlib.sha256(json.dumps(self.documents).encode()).hexdigest()[:24]

    @property
    def references(self) -> list[tuple[str, ...]]:
        return [references for _, references in self.sentences]


def read_set(
    corpus: AnySet, languages: Languages, folder: Path | None, name: str
) -> Iterator[EvaluationSentence]:
    """The sentences of a validation or test set. One that was held out of the training corpora is read from
    the `folder` of the run; `name` is valid or test. `languages` are those of the config.
    """
    if isinstance(corpus, FromTrainCorpus):
        return read_held_out(folder or Path(), name)
    return corpus.sentences(languages)


def read_in_documents(
    corpus: AnySet, languages: Languages, folder: Path | None, name: str
) -> tuple[list[EvaluationSentence], list[int] | None]:
    """The sentences as `read_set` has them, without the blank ones that end documents, and the number of each
    one's document; None where the set has no documents.
    """
    sentences = list(read_set(corpus, languages, folder, name))
    if isinstance(corpus, FromTrainCorpus) or not corpus.documents:
        return sentences, None
    kept = [
        (sentence, number)
        for sentence, number in corpus.in_documents(sentences, languages)
        if "".join([sentence[0], *sentence[1]]).strip()
    ]
    return [sentence for sentence, _ in kept], [number for _, number in kept]
