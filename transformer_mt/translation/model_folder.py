"""The folder a model is loaded from: that of a run, or an exported one."""

import json
import warnings
from pathlib import Path
from typing import Any

from transformer_mt.config import Config, load_config
from transformer_mt.errors import InputError, Notice


def is_exported(folder: Path) -> bool:
    """Whether the folder is an export for CTranslate2."""
    return (folder / "model.bin").exists()


def load_run_config(folder: Path, decode: dict[str, Any] | None = None) -> Config:
    """The config of a run's folder, with the given settings of `decode` changed."""
    if not folder.is_dir():
        there = Path("runs") / folder.name
        hint = (
            f"did you mean {there}?"
            if there.is_dir()
            else "a model is the folder of a run, such as runs/demo"
        )
        raise InputError(f"{folder}: no such folder; {hint}")
    if not (folder / "config.yaml").exists():
        raise InputError(f"{folder}: must be a run's folder, but holds no config.yaml")
    overrides = [f"decode.{key}={_yaml(value)}" for key, value in (decode or {}).items()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)  # old names of keys are not the user's mistake here
        config = load_config(folder / "config.yaml", overrides)
    if "stop_early" in config.decode.model_fields_set:
        return config
    # Configs of versions before this key lack it. Those versions always stopped early.
    return config.model_copy(update={"decode": config.decode.model_copy(update={"stop_early": True})})


def _yaml(value: Any) -> str:
    """A setting as the YAML that reads back as it."""
    return (
        str(value)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else json.dumps(value, ensure_ascii=False)
    )
