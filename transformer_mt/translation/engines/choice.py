"""The choice of an engine for a model, and what a translator needs of the model's folder besides it."""

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_mt.config import Config, DecodeConfig
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError, Setting
from transformer_mt.runs.folder import RunFolder
from transformer_mt.runs.usage import check_translates
from transformer_mt.translation.engines.ctranslate2_engine import (
    CTranslate2Engine,
    check_settings,
    choose_device_name,
    import_ctranslate2,
    supported_settings,
)
from transformer_mt.translation.engines.engine import Engine

# Settings with which CTranslate2's beam may keep other hypotheses than ours.
_KEEP_OTHERS = ("min_length", "max_length", "no_repeat_ngram")
SAME_SEARCH = {key: getattr(DecodeConfig(), key) for key in (*_KEEP_OTHERS, "max_length_ratio")}
"""Settings with which it keeps the same."""


@dataclass(frozen=True)
class LoadedModel:
    """A model that can be searched."""

    engine: Engine
    tokenizer: Tokenizer
    configs: list[Config]
    """Its config; of an ensemble one for each model."""
    run: RunFolder


def needs_torch(
    settings: DecodeConfig, glossary: bool = False, retry: bool = False, prefixes: bool = False
) -> bool:
    """True if only the torch engine does what a call asks for: it writes whatever phrase it must, and a
    search again has rules. After a prefix a beam of CTranslate2 may keep other hypotheses.
    """
    return glossary or retry or (prefixes and settings.beam > 1)


def load_model_to_search(
    folder: str | Path,
    device: str = "auto",
    dtype: str | None = None,
    decode: dict[str, Any] | None = None,
    engine: str = "auto",
    ensemble: Sequence[str | Path] = (),
) -> LoadedModel:
    """The model of a run or an export with an engine: CTranslate2 for exports and, with `auto` on a CPU, for
    a run with an export of its own that translates alike; else torch. InputError for what does not go
    together.
    """
    run = RunFolder(folder)
    if engine == "ctranslate2" and not run.is_export and "stop_early" not in (decode or {}):
        decode = {**(decode or {}), "stop_early": True}  # as the search of CTranslate2 always ends
    config = run.config(decode)
    check_translates(config, folder)
    if ensemble and engine == "ctranslate2":
        raise InputError(
            Setting("ensemble"), " requires ", Setting("engine", "torch"),
            ", but the engine is ctranslate2",
        )  # fmt: skip
    if wrong := next(
        (other for other in (folder, *ensemble) if ensemble and RunFolder(other).is_export), None
    ):
        raise InputError(f"{wrong}: must be a run's folder to translate in an ensemble, but is an export")
    if run.is_export:
        if engine == "torch":
            raise InputError(
                f"{folder}: an exported model must have ", Setting("engine", "ctranslate2"),
                ", but is asked for torch",
            )  # fmt: skip
        return _of_export(run, run, config, device, dtype)
    if engine == "ctranslate2":
        check_settings(config.decode)
        choose_device_name(device, dtype)
        if (export := run.own_export) is None:
            raise InputError(
                f"{folder}: must be an exported model for CTranslate2, but is a run without an export; "
                f"export it with: transformer-mt export {folder} DIR"
            )
        return _of_export(export, run, config, device, dtype)
    if engine == "auto" and not ensemble:
        exported = _own_export(run, config.decode, device, dtype)
        if exported is not None:
            return _of_export(exported, run, config, "cpu", None)
    from transformer_mt.translation.engines.torch_engine import TorchEngine  # its import takes a second

    runs = [run, *map(RunFolder, ensemble)]
    configs = [config, *(other.config() for other in runs[1:])]
    searcher = TorchEngine.load(runs, configs, device, dtype or "float32")
    return LoadedModel(searcher, searcher.tokenizer, configs, run)


def _of_export(
    export: RunFolder, run: RunFolder, config: Config, device: str, dtype: str | None
) -> LoadedModel:
    """An export, with all else of the run."""
    tokenizer = run.tokenizer()
    engine = CTranslate2Engine.load(export.path, tokenizer, device, dtype)
    return LoadedModel(engine, tokenizer, [config], run)


def _own_export(run: RunFolder, settings: DecodeConfig, device: str, dtype: str | None) -> RunFolder | None:
    """The run's own export where a CPU is to search: it is faster, and translates as the run does. None where
    it does not, or there is none.
    """
    usual = DecodeConfig()
    if device not in ("auto", "cpu") or dtype not in (None, "float32"):
        return None
    if not (settings.stop_early or settings.beam == 1) or supported_settings(settings)[1]:
        return None
    if any(getattr(settings, key) != getattr(usual, key) for key in _KEEP_OTHERS):
        return None
    if settings.max_length_ratio < usual.max_length_ratio:
        return None
    is_one_of_several = int(os.environ.get("WORLD_SIZE", 1)) > 1  # each would use all cores
    if is_one_of_several or importlib.util.find_spec("ctranslate2") is None:
        return None
    export = run.own_export
    if export is not None and device == "auto" and _has_gpu():
        return None
    return export


def _has_gpu() -> bool:
    """True if torch may find a GPU: NVIDIA's, or any on a Mac."""
    return sys.platform == "darwin" or bool(import_ctranslate2().get_cuda_device_count())
