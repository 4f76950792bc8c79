"""Fine-tuning: the run that a training begins from, needed only until its first checkpoint."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from transformer_mt.checkpoint import load_model_weights, load_weights
from transformer_mt.config import Config
from transformer_mt.data.vocabulary.tokenizer import UNK
from transformer_mt.errors import InputError
from transformer_mt.evaluation.fine_tuning import PARENT
from transformer_mt.files import digest, write_text
from transformer_mt.translation.model_folder import load_run_config


@dataclass(frozen=True)
class Parent:
    """A trained run."""

    folder: Path
    config: Config
    weights: str
    """A digest of its weights."""

    @classmethod
    def open(cls, folder: Path) -> "Parent":
        """The run in the folder. InputError if there is none."""
        file = folder / "model.safetensors"
        if not file.exists():
            raise InputError(
                f"`init_from` must be the folder of a trained run, but {folder} has no model.safetensors"
            )
        return cls(folder, load_run_config(folder), digest(file))

    def give_weights(self, model: nn.Module) -> None:
        """Copy the weights into the model. Pieces the parent does not have begin as its <unk>, whose vector
        the training has made unlikely as output.
        """
        file = self.folder / "model.safetensors"
        weights = load_weights(file)
        for name, parameter in model.named_parameters():
            if name in weights and len(parameter) > len(weights[name]):
                weights[name] = _with_rows(weights[name], len(parameter))
        load_model_weights(model, weights, str(file))

    def record(self, folder: Path) -> None:
        """Write into the run's folder what it began from."""
        facts = {"folder": str(self.folder), "config": self.config.name, "weights": self.weights}
        write_text(folder / PARENT, json.dumps(facts, indent=1) + "\n")


def _with_rows(embedding: Tensor, rows: int) -> Tensor:
    return torch.cat([embedding, embedding[UNK].expand(rows - len(embedding), -1)])
