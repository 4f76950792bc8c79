"""torch.compile of training: one graph for batches of all lengths, on a CPU whose own code is left out."""

import logging

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from transformer_mt.config.model import ModelConfig
from transformer_mt.data.batches.batching import make_batch, plan_epoch
from transformer_mt.model.build import build_model
from transformer_mt.model.kernels import dropout, fast_attention
from transformer_mt.training.update import loss
from transformer_mt.training.update.step import Objective

RNG = np.random.default_rng(0)
SMALL = {"d_model": 32, "d_ff": 64, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}
ODD = [(1, 5, 7), (3, 5, 1), (3, 1, 5), (2, 1, 2), (1, 1, 1), (512, 8, 8)]  # sentences, S, T


def batches(count):
    """Batches of an epoch of sentences that are as long as those of a corpus are."""
    src = np.clip(np.exp(RNG.normal(2.6, 0.5, 10_000)), 2, 60).astype(int)
    tgt = np.clip(src * np.exp(RNG.normal(0.05, 0.2, len(src))), 2, 60).astype(int)
    for rows in plan_epoch(src, tgt, 2048, seed=1, epoch=0)[:count]:
        yield make_batch(
            *([RNG.integers(4, 500, length - 1) for length in side[rows]] for side in (src, tgt))
        )


@pytest.fixture
def no_logs():
    """pytest would keep the compiler's records of everything, which takes longer than compiling."""
    logging.disable(logging.INFO)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("keys", [{}, {"position": "rotary", "norm": "post"}], ids=str)
def test_one_graph_serves_all_batches(keys, monkeypatch, no_logs):
    for module in (dropout, fast_attention, loss):
        monkeypatch.setattr(module, "uses_cpu_code", lambda x: False)
    torch._dynamo.reset()
    counters.clear()
    model = build_model(ModelConfig(**{**SMALL, **keys}), 500, 500, True, 128)
    real = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda function, **options: real(function, backend="aot_eager", **options)
    )
    objective = Objective(model, 0.1, compiled=True, copies_weights=True)
    odd = (make_batch([np.full(S - 1, 5)] * B, [np.full(T - 1, 5)] * B) for B, S, T in ODD)
    for made in (batches(50), odd):
        for batch in made:
            with torch.autocast("cpu", torch.bfloat16):
                objective(batch)[0].backward()
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
