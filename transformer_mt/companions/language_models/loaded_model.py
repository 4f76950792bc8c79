"""A trained encoder or decoder, with its vocabulary."""

from dataclasses import dataclass
from pathlib import Path

import torch

from transformer_mt.config import Config
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.device import choose_device, use_device
from transformer_mt.errors import InputError
from transformer_mt.model.interface import TranslationModel
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.engines.torch_engine import load_model


@dataclass(frozen=True)
class TextModel:
    """A model on its device."""

    model: TranslationModel
    tokenizer: Tokenizer
    config: Config
    device: torch.device

    @classmethod
    def load(cls, folder: str | Path, kinds: tuple[str, ...], device: str = "auto") -> "TextModel":
        """The model in a run's folder. InputError if its `model.kind` is none of these."""
        run = RunFolder(folder)
        config = run.config()
        if config.model.kind not in kinds:
            raise InputError(
                f"{folder}: must be a run with model.kind: {' or '.join(kinds)}, but is {config.model.kind}"
            )
        chosen = choose_device(device)
        use_device(chosen)
        model, tokenizer = load_model(run, config)
        return cls(model.to(chosen).eval(), tokenizer, config, chosen)
