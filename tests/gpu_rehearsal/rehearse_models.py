"""Every mechanism of attention and position on a GPU: trained and searched on one device, without waiting for
values.
"""

import numpy as np
import pytest
import torch

from tests.gpu_rehearsal.fake_gpu import GPU, on_gpu, rehearsal
from tests.unit.model.test_cached_step import PAIRWISE, _name
from transformer_mt.data.batches.batch import make_batch
from transformer_mt.device import autocast
from transformer_mt.model.build_model import build_model
from transformer_mt.update.loss import CrossEntropy
from transformer_mt.update.step import Objective

RNG = np.random.default_rng(0)
# Torch has no form without values of a GRU's cell on CUDA.
CONFIGS = [config for config in PAIRWISE if config.kind != "recurrent" or config.recurrent.cell != "gru"]


class Unpacked(torch.nn.Module):
    """A stand-in for a recurrent encoder: kernels for packed sequences run real code, which needs values. On
    a GPU that encoder waits once a batch, for the lengths.
    """

    def __init__(self, encoder):
        super().__init__()
        self.cells = encoder.rnn

    def forward(self, x, src_mask):
        weights = sum(weight.sum() for weight in self.cells.parameters())
        return x * weights


@pytest.mark.parametrize("config", CONFIGS, ids=_name)
def test_a_network_does_not_wait(config):
    sides = [[RNG.integers(4, 60, RNG.integers(5, 30)) for _ in range(6)] for _ in range(2)]
    with rehearsal() as watch:
        model = build_model(config, 60, 60, True, 64).train()
        if config.kind == "recurrent":
            model.encoder = Unpacked(model.encoder)
        on_gpu(model)
        batch = make_batch(*sides).pinned().to(GPU)
        watch.clear()
        with autocast(GPU, torch.bfloat16):
            loss, _ = Objective(model, CrossEntropy(0.1))(batch)
        loss.backward()
        assert not watch.waits
        model.eval()
        watch.clear()
        with torch.inference_mode():
            state = model.start(model.encode(batch.src, batch.src_mask), batch.src_mask)
            assert not watch.waits
            state = state.select(torch.arange(6, device=GPU)[:, None].expand(6, 2))
            for _ in range(2):
                _, state = model.step(torch.full((12,), 3, device=GPU), state)
                state = state.select(torch.arange(12, device=GPU).view(6, 2))
        assert not watch.waits
