"""A complete Transformer translation trainer. The public names are imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transformer_mt.cpu import wait_without_spinning
from transformer_mt.version import __version__

__all__ = ["Translator", "__version__", "load_config", "pipeline", "train"]

if TYPE_CHECKING:
    from transformer_mt.api import train
    from transformer_mt.config import load_config
    from transformer_mt.translation.pipeline import pipeline
    from transformer_mt.translation.translator import Translator


wait_without_spinning()


_MODULES = {
    "Translator": "transformer_mt.translation.translator",
    "load_config": "transformer_mt.config",
    "pipeline": "transformer_mt.translation.pipeline",
    "train": "transformer_mt.api",
}


def __getattr__(name: str) -> Any:
    # torch takes more than a second to import; `translate --help` must not wait for it.
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
