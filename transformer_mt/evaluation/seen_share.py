"""The sentences of a test set that a system was trained on or chosen by: whatever prints scores asks here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from transformer_mt.corpora.evaluation_sets import EvaluationSet
from transformer_mt.corpora.seen_sentences import Sentences, keys_of
from transformer_mt.run_folder import RunFolder
from transformer_mt.text.hashes import sentence_key

SEEN_NOTE = (
    "seen: the share of sentences that the system, or a model it derives from, was trained or validated on; "
    "?: not recorded"
)


UNKNOWN = "?"
"""The share of a system that has no full record, and is not known to have seen a sentence."""


@dataclass(frozen=True)
class SeenShare:
    """The part of a test set that is known to a system."""

    count: int
    total: int
    is_complete: bool
    """False where the system, or a model it is made of, has not recorded all that it was trained on."""

    def __str__(self) -> str:
        if not self.count:
            return "0 %" if self.is_complete else UNKNOWN
        return f"{'' if self.is_complete else '≥ '}{max(0.1, 100 * self.count / self.total):.1f} %"

    @property
    def to_keep(self) -> str:
        """For a file of scores; empty where surely nothing of the set is known to the system."""
        return "" if self.is_complete and not self.count else str(self)

    @property
    def in_words(self) -> str:
        """For a line about a set; empty where nothing of it is known to the system."""
        return (
            f"{self.count:,} of {self.total:,} sentences seen before, in training, validation or a memory"
            if self.count
            else ""
        )


class SystemRecord:
    """The sentences that one system was trained on: a run, or several that translate together."""

    def __init__(self, runs: Sequence[RunFolder], texts: Iterable[str] = ()) -> None:
        """`texts` are those that the system looks up while it translates, such as a memory's."""
        records = [run.seen() for run in runs]
        known = [record for record in records if record is not None]
        self._sentences = [part for record in known for part in (record.own, record.inherited)]
        self._sentences.append(Sentences(trained=keys_of(texts)))
        self.is_complete = len(known) == len(runs) and all(record.is_complete for record in known)

    def share(self, test: EvaluationSet) -> SeenShare:
        """The share of the test set's sentences that the system knows."""
        keys = [sentence_key(src) for src in test.sources]
        knows = [part.knows(test.sentences) | part.validated.has(keys) for part in self._sentences]
        known = np.any(knows, axis=0)
        return SeenShare(int(known.sum()), len(test.sentences), self.is_complete)
