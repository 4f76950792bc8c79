"""A run's export made once and kept, for `--engine ctranslate2` on a run's folder."""

import shutil
from collections.abc import Callable
from pathlib import Path

from transformer_mt.cache import cache_root
from transformer_mt.errors import InputError
from transformer_mt.files import digest


def exported(run: Path, say: Callable[[str], None]) -> Path:
    """The folder of the run's float32 export, made now if these weights were not exported before."""
    weights = run / "model.safetensors"
    if not weights.exists():
        raise InputError(f"{run}: no model.safetensors yet; training writes it at its first validation")
    folder = cache_root() / "exports" / digest(weights, run / "config.yaml")
    if not (folder / "model.bin").exists() or not (folder / "export.json").exists():
        shutil.rmtree(folder, ignore_errors=True)  # a part of one, which somebody cut down
        from transformer_mt.export.export import export  # imports torch, which the export itself does without

        say(f"exporting {run} to {folder}, once")
        try:
            say(str(export(run, folder, "float32", None, say)))
        except (InputError, OSError):
            if not (folder / "export.json").exists():  # another process was faster
                raise
    return folder
