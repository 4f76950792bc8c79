"""A complete Transformer translation trainer. `Translator` and `train` are imported when first asked for."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Translator", "__version__", "train"]

if TYPE_CHECKING:
    from transformer_mt.decoding.translator import Translator
    from transformer_mt.training.loop import train


def __getattr__(name: str) -> Any:
    # torch takes more than a second to import; `translate --help` must not wait for it.
    if name == "Translator":
        from transformer_mt.decoding.translator import Translator

        return Translator
    if name == "train":
        from transformer_mt.training.loop import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
