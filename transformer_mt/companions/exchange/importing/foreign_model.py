"""The parts of a run that each reader of a foreign model returns; downloads of models from the hub."""

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from transformer_mt.corpora.hub import download, is_network_error
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import cache_root, missing, write_text
from transformer_mt.text.languages import short_code


def read_json(file: Path, default: Any = None) -> dict[str, Any]:
    """The object in the file, or `default` where there is none. InputError if it is damaged."""
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if default is None:
            raise InputError(f"{file}: no such file; is this the folder of a model?") from None
        facts = default
    except (OSError, ValueError):
        raise InputError(f"{file}: is not JSON in UTF-8; download it again") from None
    if not isinstance(facts, dict):
        raise InputError(f"{file}: is not an object of JSON")
    return facts


@dataclass(frozen=True)
class Languages:
    """The languages a user names for a model."""

    source: str | None = None
    target: str | None = None
    is_fallback: bool = False
    """True if the languages are used only where the model does not state its own."""


NO_LANGUAGES = Languages()


_FILE = "model.safetensors"
NOT_SAFE = (
    "whose files may hold code that runs when they are read; convert it with transformers: "
    "AutoModelForSeq2SeqLM.from_pretrained(MODEL).save_pretrained(FOLDER), and the same with AutoTokenizer"
)
"""Part of the error for a model that exists only in the older file format."""


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
    """The source language, as the model or its folder's name states it, and the target languages: all that
    the vocabulary has tokens for, else the one that is stated. None and an empty list if they are not known.
    """
    if named := _NAMED.fullmatch(folder.resolve().name):
        source, target = source or named[1], target or named[2]
    source, target = (code and _OLD_GROUPS.get(code, code) for code in (source, target))
    codes = [match[1] for piece in tokenizer.control_ids if (match := _LANGUAGE_PIECE.fullmatch(piece))]
    if codes:  # the stated one first
        return source, sorted(codes, key=lambda code: (code != target, code))
    return source and short_code(source), [short_code(target)] if target else []


def papers_in(folder: Path) -> list[Path]:
    """The model's card and its licence."""
    files = (path for path in sorted(folder.iterdir()) if path.is_file())
    return [path for path in files if re.match(r"(?i)(readme|licen[cs]e)", path.name)]


_WEIGHTS = re.compile(r"model.*\.safetensors(\.index\.json)?")
# What is read besides the weights. Nothing else is fetched, least of all code.
_FILES = re.compile(r"[\w.-]+\.(json|spm|model)|(?i:readme|licen[cs]e)[\w.]*")
# The hub's own program, which adds a safe copy of older weights to a model as a proposed change.
_CONVERTER = "SFconvertbot"


def fetched(name: str, revision: str | None = None) -> tuple[Path, str | None]:
    """The folder of the model and its commit; a local folder as it is, without a commit. InputError if the
    hub does not have the model, WorkError if the hub cannot be reached and the model is not in the cache.
    """
    if name.endswith((".npz", ".bin")) and not Path(name).exists():
        raise InputError(missing(name))
    if Path(name).exists():
        if revision is not None:
            raise InputError(f"{name}: a local folder has no revision, but `revision` is {revision}")
        return Path(name), None
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name) or name.startswith("."):
        raise InputError(
            f"{name}: must be a folder, or the name of a model on the hub such as Helsinki-NLP/opus-mt-en-de"
        )
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        info = _with_weights(huggingface_hub.HfApi(), name, revision)
    except InputError:
        raise
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError):
        state = f" of revision {revision}" if revision else ""
        raise InputError(f"{name}: the hub has no such model{state}; check the name") from None
    except Exception as error:
        if not is_network_error(error):
            raise
        return _in_cache(name, revision, error)
    wanted = [file for file in _names(info) if _WEIGHTS.fullmatch(file) or _FILES.fullmatch(file)]
    files = [download(name, file, str(info.sha), name, "model") for file in wanted]
    folder_and_commit = files[0].parent, str(info.sha)
    kept = _kept(name, revision)
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_text(kept, json.dumps([str(folder_and_commit[0]), folder_and_commit[1]]))
    return folder_and_commit


def _with_weights(hub: Any, name: str, revision: str | None) -> Any:
    """The hub's description of the model, or of its copy with safe weights if the model itself has none."""
    info = hub.model_info(name, revision=revision)
    if any(map(_WEIGHTS.fullmatch, _names(info))):
        return info
    if revision is None:
        for change in hub.get_repo_discussions(name, author=_CONVERTER, discussion_type="pull_request"):
            copy = hub.model_info(name, revision=f"refs/pr/{change.num}")
            if change.author == _CONVERTER and any(map(_WEIGHTS.fullmatch, _names(copy))):
                return copy
    if "pytorch_model.bin" in _names(info):
        raise InputError(f"{name}: must hold model.safetensors, but holds pytorch_model.bin, {NOT_SAFE}")
    raise InputError(f"{name}: must hold model.safetensors, but does not")


def _names(info: Any) -> list[str]:
    return [sibling.rfilename for sibling in info.siblings or []]


def _in_cache(name: str, revision: str | None, error: Exception) -> tuple[Path, str | None]:
    """The copy fetched before, where there is no network."""
    kept = _kept(name, revision)
    folder, commit = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else ("", None)
    if not folder or not Path(folder).is_dir():
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise WorkError(
            f"{name}: cannot be downloaded from the hub: {reason}; check the network, or download it "
            "elsewhere and name the folder"
        )
    return Path(folder), commit


def _kept(name: str, revision: str | None) -> Path:
    """File that records what a name stands for, so that it can be used without a network."""
    key = hashlib.sha256(json.dumps(["model", name, revision]).encode()).hexdigest()[:24]
    return cache_root() / "downloads" / "hub" / f"{key}.json"


MODEL_BIN = "model.bin"


def is_public(folder: Path) -> bool:
    """True if a public model is there: in the layout of the Hugging Face hub, or as Marian, CTranslate2's
    converters or Argos Translate write it.
    """
    if (folder / "config.yaml").exists():
        return False
    return (folder / "config.json").exists() or is_ctranslate2(folder) or is_marian(folder)


def is_marian(path: Path) -> bool:
    """True if the path is a file of Marian's or a folder with one."""
    return is_marian_file(path) or (path.is_dir() and bool(marian_files(path)))


def marian_files(folder: Path) -> list[Path]:
    """The models of Marian in a folder."""
    return [file for file in sorted([*folder.glob("*.npz"), *folder.glob("*.bin")]) if is_marian_file(file)]


def is_marian_file(file: Path) -> bool:
    """True for an .npz file, and for a .bin file that begins as Marian's do, with the version 1."""
    if file.suffix != ".bin" or not file.is_file():
        return file.suffix == ".npz" and file.is_file()
    with file.open("rb") as opened:
        return opened.read(8) == (1).to_bytes(8, "little")


def is_ctranslate2(folder: Path) -> bool:
    """True if the folder holds a model of CTranslate2 that is not an export of this project."""
    model = ctranslate2_inside(folder) / MODEL_BIN
    return model.exists() and not (folder / "export.json").exists() and not is_marian_file(model)


def ctranslate2_inside(folder: Path) -> Path:
    """Folder of the model: inside an Argos package, a subfolder."""
    return folder if (folder / MODEL_BIN).exists() else folder / "model"
