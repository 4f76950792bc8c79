"""The YAML config: a module for each section, and modules that read YAML into a Config and write it back.

YAML files and `key=value` overrides become a `Config`, or an error that lists every mistake. Start with
`root.py`, which defines the whole config; `load.py` reads it, `resolve.py` settles what it leaves open.
"""

from transformer_mt.config.data_section import DataConfig
from transformer_mt.config.decode_section import DecodeConfig, EvaluateConfig
from transformer_mt.config.load import load_config
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.config.root import Config, TokenizerConfig
from transformer_mt.config.train_section import TrainConfig

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
