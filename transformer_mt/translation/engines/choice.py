"""The choice of an engine for a model."""

import importlib.util
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformer_mt.config import Config, DecodeConfig
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError, Setting
from transformer_mt.run_folder import RunFolder, check_translates
from transformer_mt.translation.engines.ctranslate2_engine import (
    CTranslate2Engine,
    check_settings,
    choose_device_name,
    import_ctranslate2,
    supported_settings,
)
from transformer_mt.translation.engines.engine import Engine, EngineRequest

# Settings with which CTranslate2's beam may keep other hypotheses than torch's.
_KEEP_OTHERS = ("min_length", "max_length", "no_repeat_ngram")
SAME_SEARCH = {key: getattr(DecodeConfig(), key) for key in (*_KEEP_OTHERS, "max_length_ratio")}
"""Values with which both engines keep the same hypotheses."""


@dataclass(frozen=True)
class LoadedModel:
    """A model that can be searched."""

    engine: Engine
    tokenizer: Tokenizer
    configs: list[Config]
    """Its config; of an ensemble one for each model."""
    run: RunFolder


Check = Callable[[DecodeConfig], None]
"""Raises InputError for settings of the search that do not go together with a request."""


def load_model_to_search(
    run: RunFolder,
    request: EngineRequest,
    decode: Mapping[str, Any] | None = None,
    ensemble: Sequence[RunFolder] = (),
    check: Check | None = None,
) -> LoadedModel:
    """The model of a run or an export with its engine: CTranslate2 for exports and, with `auto` on a CPU, for
    a run with an export of its own that translates alike; else torch. InputError for what does not go
    together, and what `check` refuses, before the model is read.
    """
    folder, asked, device, dtype = run.path, request.engine, request.device, request.dtype
    if asked == "ctranslate2" and not run.is_export:
        decode = {"stop_early": True, **(decode or {})}  # CTranslate2 always stops early
    config = run.config(dict(decode or {}))
    if check is not None:
        check(config.decode)
    check_translates(config, folder)
    if ensemble and asked == "ctranslate2":
        raise InputError(
            Setting("ensemble"), " requires ", Setting("engine", "torch"),
            ", but the engine is ctranslate2",
        )  # fmt: skip
    if wrong := next((other for other in (run, *ensemble) if ensemble and other.is_export), None):
        raise InputError(
            f"{wrong.path}: must be a run's folder to translate in an ensemble, but is an export"
        )
    if run.is_export and asked == "torch":
        raise InputError(
            f"{folder}: an exported model must have ", Setting("engine", "ctranslate2"),
            ", but is asked for torch",
        )  # fmt: skip
    # After a prefix CTranslate2's beam may keep other hypotheses than torch's.
    needs_torch = request.has_rules or (request.has_prefixes and config.decode.beam > 1)
    export: RunFolder | None = None
    if run.is_export:
        export = run
    elif asked == "ctranslate2":
        check_settings(config.decode)
        choose_device_name(device, dtype)
        export = run.own_export
        if export is None:
            raise InputError(
                f"{folder}: must be an exported model for CTranslate2, but is a run without an export; "
                f"export it with: transformer-mt export {shlex.quote(str(folder))} DIR"
            )
    elif asked == "auto" and not (ensemble or needs_torch):
        export = _own_export(run, config.decode, device, dtype)
        if export is not None:
            device, dtype = "cpu", None
    if export is not None:
        tokenizer = run.tokenizer()
        engine = CTranslate2Engine.load(export.path, tokenizer, device, dtype)
        return LoadedModel(engine, tokenizer, [config], run)
    from transformer_mt.translation.engines.torch_engine import TorchEngine  # its import takes a second

    configs = [config, *(other.config() for other in ensemble)]
    searcher = TorchEngine.load([run, *ensemble], configs, device, dtype or "float32")
    return LoadedModel(searcher, searcher.tokenizer, configs, run)


def _own_export(run: RunFolder, settings: DecodeConfig, device: str, dtype: str | None) -> RunFolder | None:
    """The run's export, if the search runs on a CPU, where it is faster. None if there is no export, or if
    its translations could differ from the run's.
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
