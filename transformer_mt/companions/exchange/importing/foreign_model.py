"""The result of every reader of another software's models: the parts of a run."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.text.languages import short_code


def read_json(file: Path, default: Any = None) -> dict[str, Any]:
    """The object in the file, or `default` where there is none. InputError if it is damaged."""
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if default is None:
            raise InputError(f"{file}: no such file; is the folder a model's?") from None
        facts = default
    except (OSError, ValueError):
        raise InputError(f"{file}: must be JSON in UTF-8, but is not; download it again") from None
    if not isinstance(facts, dict):
        raise InputError(f"{file}: must be an object of JSON, but is not")
    return facts


@dataclass(frozen=True)
class Languages:
    """The languages a user names for a model."""

    source: str | None = None
    target: str | None = None
    is_fallback: bool = False
    """Only for what the model does not say."""


NO_LANGUAGES = Languages()


_FILE = "model.safetensors"
NOT_SAFE = (
    "whose files may hold code that runs when they are read; convert it with transformers: "
    "AutoModelForSeq2SeqLM.from_pretrained(MODEL).save_pretrained(FOLDER), and the same with AutoTokenizer"
)
"""The error of a model that is there in the older form alone."""


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors by their names. InputError if there are none or a file is damaged."""
    if (folder / _FILE).exists():
        return _read(folder / _FILE)
    index = folder / f"{_FILE}.index.json"
    if index.exists():
        files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        parts = [_read(folder / Path(file).name) for file in sorted(files)]
        return {name: tensor for part in parts for name, tensor in part.items()}
    if (folder / "pytorch_model.bin").exists():
        raise InputError(f"{folder}: must hold {_FILE}, but holds pytorch_model.bin, {NOT_SAFE}")
    raise InputError(f"{folder}: must hold {_FILE}, but does not; download it again")


def _read(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except FileNotFoundError:
        raise InputError(f"{file}: is named in the index, but is not there; download it again") from None
    except (SafetensorError, OSError) as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise InputError(f"{file}: must be a file of weights, but is damaged: {reason}") from None


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
