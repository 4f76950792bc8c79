"""The files of a model on the Hugging Face hub, in the local cache of its library."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from transformer_mt.companions.exchange.importing.foreign_model import NOT_SAFE
from transformer_mt.corpora.hub import download, is_network_error
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import cache_root, missing, write_text

_WEIGHTS = re.compile(r"model.*\.safetensors(\.index\.json)?")
# What is read besides the weights. Nothing else is fetched, least of all code.
_FILES = re.compile(r"[\w.-]+\.(json|spm|model)|(?i:readme|licen[cs]e)[\w.]*")
# The hub's own program, which adds a safe copy of older weights to a model as a proposed change.
_CONVERTER = "SFconvertbot"


def fetched(name: str, revision: str | None = None) -> tuple[Path, str | None]:
    """The folder of the model, and its commit; a local folder as it is. InputError if the hub does not have
    it, WorkError if it cannot be reached and is not in the cache.
    """
    if name.endswith(".npz") and not Path(name).exists():
        raise InputError(missing(name))
    if Path(name).exists():
        if revision is not None:
            raise InputError(f"{name}: a local folder has no revision, but `revision` is {revision}")
        return Path(name), None
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name) or name.startswith("."):
        raise InputError(
            f"{name}: must be a folder, or the name of a model on the hub, such as "
            "Helsinki-NLP/opus-mt-en-de, but is neither"
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
    """The hub's description of the model; of its copy with safe weights where only that has them."""
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
