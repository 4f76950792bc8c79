"""Tiny models and batches for tests of single updates."""

import numpy as np
import torch

from transformer_mt.config import TrainConfig
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.data.batches.batch import Rows, make_batch, make_packed_batch
from transformer_mt.data.batches.encoded_pairs import Column
from transformer_mt.data.batches.packing import RowShape, packed_rows
from transformer_mt.model.build_model import build_model
from transformer_mt.ranks import Ranks
from transformer_mt.update.loss import CrossEntropy
from transformer_mt.update.optimizer import build_optimizer
from transformer_mt.update.step import Objective, Updater

CPU = torch.device("cpu")


class ListedRows(Rows):
    """Rows of these sources and targets, in no file."""

    def __init__(self, src, tgt):
        self.sides = src, tgt

    def lengths(self, epoch, part=None):
        return tuple(np.array([len(ids) + 1 for ids in side]) for side in self.sides)

    def rows(self, epoch, rows):
        return tuple([np.array(side[i]) for i in rows] for side in self.sides)


def tiny_model(**changes):
    torch.manual_seed(0)
    config = {
        "d_model": 16,
        "d_ff": 32,
        "num_heads": 2,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "dropout": 0.0,
    }
    return build_model(ModelConfig(**{**config, **changes}), 40, 40, True, 30)


def pairs(count, seed=0):
    rng = np.random.default_rng(seed)
    return [tuple(rng.integers(4, 40, rng.integers(1, 12)) for _ in range(2)) for _ in range(count)]


def batch_of(rows):
    return make_batch([src for src, _ in rows], [tgt for _, tgt in rows])


def updater(model, dtype=torch.float32, max_grad_norm=1.0, objective=None, ranks=None, **settings):
    own = {key: settings.pop(key) for key in ("micro_batch_tokens", "may_halve") if key in settings}
    optimizer = build_optimizer(model, TrainConfig(**settings))
    objective = objective or Objective(model, CrossEntropy(0.1))
    return Updater(objective, optimizer, CPU, dtype, max_grad_norm, ranks or Ranks(), **own)


class Scarce(Objective):
    """Has memory for batches of so many positions only."""

    room = 40

    def forward(self, batch):
        if batch.num_positions > self.room:
            raise torch.OutOfMemoryError("no room")
        return super().forward(batch)


def packed_batch_of(rows, length=24, num_rows=0):
    """The pairs packed into rows of `length` positions on each side: `num_rows`, or as few as possible."""
    lengths = [np.array([len(row[side]) + 1 for row in rows]) for side in (0, 1)]
    row = packed_rows(*lengths, RowShape(0, length, length))
    order = np.argsort(row, kind="stable")
    shape = RowShape(num_rows or int(row.max()) + 1, length, length)
    src, tgt = (Column.of([rows[i][side] for i in order]) for side in (0, 1))
    return make_packed_batch(src, tgt, row[order], shape)
