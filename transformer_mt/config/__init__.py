"""The YAML: one module for each section, and how files become a Config and a Config becomes YAML again.

In: YAML files and `key=value` overrides. Out: a `Config`, or every mistake at once. Begin with `config.py`.
The names are imported on first use: the kinds of corpora need `parts` before there is a Config.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer_mt.config.config import Config
    from transformer_mt.config.data import DataConfig
    from transformer_mt.config.decode import DecodeConfig
    from transformer_mt.config.evaluate import EvaluateConfig
    from transformer_mt.config.load import load_config
    from transformer_mt.config.model import ModelConfig
    from transformer_mt.config.tokenizer import TokenizerConfig
    from transformer_mt.config.train import TrainConfig

__all__ = [
    "Config",
    "DataConfig",
    "DecodeConfig",
    "EvaluateConfig",
    "ModelConfig",
    "TokenizerConfig",
    "TrainConfig",
    "load_config",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "load" if name == "load_config" else name.removesuffix("Config").lower() or "config"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
