"""The result of every reader of another software's models: the parts of a run."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.text.languages import short_code

_LANGUAGE_PIECE = re.compile(r">>([A-Za-z]{2,8}(?:[_-]\w+)*)<<")
# opus-mt-en-de, opus-mt-tc-big-en-fr
_NAMED = re.compile(r"opus-mt-(?:.+-)?([a-z]{2,3})-([a-z]{2,3})")


@dataclass(frozen=True)
class ForeignModel:
    """A model as it is to stand in a run's folder."""

    architecture: str
    """Its name there."""
    model: dict[str, Any]
    """Keys of `model`."""
    decode: dict[str, Any]
    """Keys of `decode`."""
    max_length: int
    tokenizer: Tokenizer
    weights: dict[str, Tensor]
    """By our names, in float32."""
    source_lang: str | None
    target_langs: list[str]
    """Empty where nothing says it."""
    language_pieces: bool | str = "auto"
    """The key `data.language_pieces`."""
    papers: list[Path] = field(default_factory=list)
    """Its card and its licence."""


_OLD_GROUPS = {
    "ROMANCE": "roa", "SCANDINAVIA": "gmq", "NORTH_EU": "gem", "CELTIC": "cel", "SAMI": "smi", "NORWAY": "no",
}  # fmt: skip
"""Groups of languages in the names of OPUS-MT's first models, and their codes (ISO 639-5)."""


def languages_of(
    folder: Path, tokenizer: Tokenizer, source: str | None, target: str | None
) -> tuple[str | None, list[str]]:
    """The source language and the target languages: those that the vocabulary has pieces for, else what the
    model says or its folder is called; None and nothing where they are not known.
    """
    if named := _NAMED.fullmatch(folder.resolve().name):
        source, target = source or named[1], target or named[2]
    source, target = (code and _OLD_GROUPS.get(code, code) for code in (source, target))
    codes = [match[1] for piece in tokenizer.control_ids if (match := _LANGUAGE_PIECE.fullmatch(piece))]
    if codes:  # the usual one first
        return source, sorted(codes, key=lambda code: (code != target, code))
    return source and short_code(source), [short_code(target)] if target else []


def papers_in(folder: Path) -> list[Path]:
    """The model's card and its licence."""
    files = (path for path in sorted(folder.iterdir()) if path.is_file())
    return [path for path in files if re.match(r"(?i)(readme|licen[cs]e)", path.name)]
