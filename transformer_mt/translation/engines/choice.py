"""The choice of an engine where the user names none. Imports no torch, whose import takes a second."""

import importlib.util
import os
import sys

from transformer_mt.config import DecodeConfig
from transformer_mt.runs.folder import RunFolder
from transformer_mt.translation.engines.ctranslate2_engine import import_ctranslate2, supported_settings

# Settings with which CTranslate2's beam may keep other hypotheses than ours.
_OTHERWISE = ("min_length", "max_length", "no_repeat_ngram")
ALIKE = {key: getattr(DecodeConfig(), key) for key in (*_OTHERWISE, "max_length_ratio")}
"""Settings with which it keeps the same."""


def export_to_search(
    run: RunFolder, settings: DecodeConfig, device: str, dtype: str | None
) -> RunFolder | None:
    """The run's own export where a CPU is to search: it is faster, and translates as the run does. None where
    it does not, or there is none.
    """
    usual = DecodeConfig()
    if device not in ("auto", "cpu") or dtype not in (None, "float32"):
        return None
    if not (settings.stop_early or settings.beam == 1) or supported_settings(settings)[1]:
        return None
    if any(getattr(settings, key) != getattr(usual, key) for key in _OTHERWISE):
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
