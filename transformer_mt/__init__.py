"""A complete Transformer translation trainer. The public names are imported on first use; companions bring
further ones.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from transformer_mt.processes import wait_without_spinning
from transformer_mt.version import __version__

__all__ = ["Translator", "__version__", "load_config", "register", "train"]

if TYPE_CHECKING:
    from transformer_mt.config import load_config
    from transformer_mt.parts import register
    from transformer_mt.training import train
    from transformer_mt.translator import Translator


wait_without_spinning()


_MODULES = {
    "Translator": "transformer_mt.translator",
    "load_config": "transformer_mt.config",
    "register": "transformer_mt.parts",
    "train": "transformer_mt.training",
}


def __getattr__(name: str) -> Any:
    # torch takes more than a second to import; `translate --help` must not wait for it.
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is None:  # else it is being imported
        from transformer_mt.companion import public_names, resolve

        if brought := public_names().get(name):
            return resolve(brought)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from transformer_mt.companion import public_names

    return [*__all__, *public_names()]
