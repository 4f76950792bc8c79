"""Checkpoint files: write them atomically, check them when reading, delete old ones, and average weights.

A checkpoint is a folder such as `step-00001000` that contains .safetensors files, `state.json`, and
`manifest.json` with the hash of each file. It is written under another name, flushed to the disk, and only
then renamed.
"""

import errno
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from transformer_mt.errors import Setting, WorkError
from transformer_mt.files import fsync
from transformer_mt.messages import say

Tensors = Mapping[str, Tensor]


_LONGEST_REASON = 300  # a library may quote what it has read


class CheckpointError(WorkError):
    """A checkpoint could not be written, or is damaged."""


@dataclass(frozen=True)
class Checkpoint:
    """The arguments of `save`, read back."""

    path: Path
    tensors: dict[str, dict[str, Tensor]]
    """Tensors by file name: `model`, `optimizer`, ... An empty group has no file."""
    state: dict[str, Any]


def save(root: Path, step: int, tensors: Mapping[str, Tensors], state: Mapping[str, Any]) -> Path:
    """Write `root/step-STEP` atomically: after a crash it is complete or absent."""
    final = root / f"step-{step:08d}"
    temporary, replaced = root / f".{final.name}.tmp", root / f".{final.name}.old"
    try:
        root.mkdir(parents=True, exist_ok=True)
        for leftover in root.glob(".step-*"):
            shutil.rmtree(leftover)
        temporary.mkdir()
        for name, group in tensors.items():
            if not group:  # safetensors cannot read a file without tensors
                continue
            write_tensors(temporary / f"{name}.safetensors", group)
        _write_json(temporary / "state.json", state)
        hashes = {path.name: _hash(path) for path in sorted(temporary.iterdir())}
        _write_json(temporary / "manifest.json", hashes)
        fsync(temporary)
        if final.exists():
            final.rename(replaced)
        temporary.rename(final)
        fsync(root)
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(f"could not write {final}: {_reason(error)}") from error
    return final


def load(path: Path) -> Checkpoint:
    """Read a checkpoint. Raises CheckpointError if a file is missing, truncated or changed.

    Other read errors, for example from a disk that does not respond, raise OSError, because the checkpoint
    may be undamaged.
    """
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        present = {file.name for file in path.iterdir()}
        for name, expected in manifest.items():
            if name not in present:
                raise ValueError(f"manifest.json names {name[:100]!r}, which is not in the folder")
            if _hash(path / name) != expected:
                raise CheckpointError(f"{path / name} is damaged: its content is not what was written")
        text = (path / "state.json").read_text(encoding="utf-8")
        state = json.loads(text, object_hook=_with_floats)
        files = [name for name in manifest if name.endswith(".safetensors")]
        return Checkpoint(
            path, {name.removesuffix(".safetensors"): load_file(path / name) for name in files}, state
        )
    except (FileNotFoundError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{path} is damaged: {_reason(error)}") from error


def all_checkpoints(root: Path) -> list[Path]:
    """All checkpoints, oldest first, damaged or not."""
    return sorted(path for path in root.glob("step-*") if path.is_dir())


def newest(root: Path) -> Checkpoint | None:
    """The newest undamaged checkpoint, or None if there are no checkpoints.

    Damaged ones are reported and renamed, so that `rotate` does not count them. CheckpointError if all
    checkpoints are damaged.
    """
    for removed in root.glob(".step-*.gone"):  # killed in the middle of `rotate`
        shutil.rmtree(removed, ignore_errors=True)
    for replaced in root.glob(".step-*.old"):  # killed between the two renames of `save`
        if not (final := root / replaced.name.removeprefix(".").removesuffix(".old")).exists():
            replaced.rename(final)
    paths = all_checkpoints(root)
    for path in reversed(paths):
        try:
            return load(path)
        except CheckpointError as error:
            say(f"{error}; taking the checkpoint before it" if path != paths[0] else str(error))
            damaged = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(damaged, ignore_errors=True)
            path.rename(damaged)
    if put_aside := list(root.glob("damaged-step-*")):
        raise CheckpointError(
            f"{root}: all of its {len(put_aside)} checkpoints are damaged; start over with ",
            Setting("fresh", True),
        )
    return None


def set_aside_after(root: Path, step: int, may_rename: bool = True) -> bool:
    """Rename the checkpoints after `step`, so that a run resumes from `step`. Returns False if there is no
    checkpoint of `step`. Of several processes, only one has `may_rename`; the others rename nothing and
    return True.
    """
    if not (root / f"step-{step:08d}").is_dir():
        return not may_rename
    for path in all_checkpoints(root) if may_rename else ():
        if path.name > f"step-{step:08d}":
            aside = path.with_name(f"diverged-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
    return True


def rotate(root: Path, keep: int, best: int | None) -> None:
    """Remove all checkpoints except the newest `keep` and the one of step `best`."""
    for path in all_checkpoints(root)[:-keep]:
        if best is None or path.name != f"step-{best:08d}":
            # Rename first, so that an interrupted removal does not leave an incomplete checkpoint under the
            # name of a complete one.
            removed = path.with_name(f".{path.name}.gone")
            path.rename(removed)
            shutil.rmtree(removed, ignore_errors=True)


def save_weights(path: Path, weights: Tensors, metadata: Mapping[str, str] | None = None) -> None:
    """Write one file of weights, whole or not at all."""
    # In a folder of its own: a kill can leave a file of safetensors, too, and the next call removes both.
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        write_tensors(temporary / path.name, weights, metadata)
        (temporary / path.name).replace(path)
        fsync(path.parent)
        shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(f"could not write {path}: {_reason(error)}") from error


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read one file of weights."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} is damaged: {_reason(error)}") from error


def metadata(path: Path) -> dict[str, str]:
    """The metadata that `save_weights` wrote with the weights."""
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} is damaged: {_reason(error)}") from error


def average(paths: Iterable[Path]) -> dict[str, Tensor]:
    """The mean of the weights in several files, summed in float64. The paper averages checkpoints, too
    (section 6.1).
    """
    total: dict[str, Tensor] = {}
    count = 0
    for path in paths:
        weights = load_weights(path)
        if count and weights.keys() != total.keys():
            raise CheckpointError(f"{path} does not hold the same weights as the other files")
        for name, weight in weights.items():
            total[name] = weight.double() + (total[name] if count else 0.0)
        count += 1
    if not count:
        raise ValueError("`paths` must name at least one file of weights, but is empty.")
    return {name: (weight / count).float() for name, weight in total.items()}


@torch.no_grad()
def _copy(parameter: Tensor, values: Tensor) -> None:
    parameter.copy_(values)


def load_model_weights(
    model: torch.nn.Module, weights: Tensors, location: str, copy: Callable[[Tensor, Tensor], None] = _copy
) -> None:
    """Copy `weights` into the model with `copy`; CheckpointError, which names `location`, if names or shapes
    differ.
    """
    parameters = dict(model.named_parameters())
    if odd := sorted(parameters.keys() ^ weights.keys()):
        raise CheckpointError(
            f"{location} does not fit the config: {len(odd)} weights have no counterpart, {odd[0]} for one"
        )
    for name, parameter in parameters.items():
        if parameter.shape != weights[name].shape:
            stored_shape, expected = tuple(weights[name].shape), tuple(parameter.shape)
            raise CheckpointError(
                f"{location} does not fit the config: {name} must have shape {expected}, but has "
                f"{stored_shape}"
            )
        copy(parameter, weights[name])


def write_tensors(path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> None:
    """Write a file of tensors and flush it. OSError says why it could not be written."""
    try:
        save_file(dict(tensors), path, dict(metadata or {}))
    except SafetensorError as error:  # safetensors hides the OSError inside
        found = re.search(r"\(os error (\d+)\)", str(error))
        number = int(found[1]) if found else 0
        raise OSError(
            number or errno.EIO, os.strerror(number) if number else str(error), str(path)
        ) from error
    # safetensors makes files that only their owner may read; a model is shared like any other file.
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)
    fsync(path)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(_without_floats(value), indent=1, allow_nan=False), encoding="utf-8")
    fsync(path)


_FLOAT = "float"


def _without_floats(value: Any) -> Any:
    """The value with NaN and infinity, which JSON lacks, written as {"float": "nan"} and the like, so that a
    run is restored exactly.
    """
    if isinstance(value, Mapping):
        return {key: _without_floats(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_floats(item) for item in value]
    return {_FLOAT: repr(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _with_floats(value: dict[str, Any]) -> Any:
    return float(value[_FLOAT]) if value.keys() == {_FLOAT} else value


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)[:_LONGEST_REASON]
