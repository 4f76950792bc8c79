"""Hashes of the sentences that a run was chosen and is scored by: a run that continues it must not train on
them.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.files import write_text
from transformer_mt.text.hashes import sentence_key


@dataclass(frozen=True)
class ScoredSentences:
    """Keys of both sides of the validation and test pairs of a run, and of the runs it continues."""

    own: frozenset[int]
    inherited: frozenset[int] | None
    """Those of the run it continues; None where that run has not recorded them."""

    @classmethod
    def read(cls, file: Path) -> "ScoredSentences | None":
        """None where the run has not recorded them."""
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
        """What a run that continues this one must not train on."""
        return self.own | (self.inherited or frozenset())


def keys_of(texts: Iterable[str]) -> frozenset[int]:
    """The keys of texts that are not blank."""
    return frozenset(sentence_key(text) for text in texts if text.strip())
