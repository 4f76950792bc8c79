"""Hashes of a run's validation and test sentences, which a fine-tuned run must not train on."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.files import write_text
from transformer_mt.text.hashes import sentence_key


@dataclass(frozen=True)
class ScoredSentences:
    """Hashes of both sides of validation and test pairs."""

    own: frozenset[int]
    """Hashes of the run's own pairs."""
    inherited: frozenset[int] | None
    """Hashes of the pairs of its parent and of earlier ancestors; None if the parent has not recorded
    them.
    """

    @classmethod
    def read(cls, file: Path) -> "ScoredSentences | None":
        """The recorded hashes; None if the run has not recorded them."""
        try:
            facts = json.loads(file.read_text(encoding="utf-8"))
            inherited = facts["inherited"]
            return cls(frozenset(facts["own"]), None if inherited is None else frozenset(inherited))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, file: Path) -> None:
        inherited = None if self.inherited is None else sorted(self.inherited)
        write_text(file, json.dumps({"own": sorted(self.own), "inherited": inherited}) + "\n")

    @property
    def for_children(self) -> frozenset[int]:
        """Hashes of the sentences that a fine-tuned run must not train on."""
        return self.own | (self.inherited or frozenset())


def keys_of(texts: Iterable[str]) -> frozenset[int]:
    """Hashes of the texts that are not blank."""
    return frozenset(sentence_key(text) for text in texts if text.strip())
