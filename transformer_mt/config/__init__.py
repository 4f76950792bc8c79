"""The YAML: one module for each section, and how files become a Config and a Config becomes YAML again.

In: YAML files and `key=value` overrides. Out: a `Config`, or every mistake at once. Begin with `config.py`.
"""

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
