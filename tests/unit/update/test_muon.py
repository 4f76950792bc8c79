"""Muon's steps."""

import pytest
import torch

from tests.helpers.updates import batch_of, pairs, tiny_model, updater
from transformer_mt.update import optimizer as optimizer_module
from transformer_mt.update.optimizer import Muon


def jordans_iteration(matrices):
    """That of torch's Muon (Jordan et al. 2024)."""
    x = matrices if matrices.size(1) <= matrices.size(2) else matrices.mT
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x if matrices.size(1) <= matrices.size(2) else x.mT


@pytest.mark.parametrize("together", [2**24, 600, 1], ids=["all", "two", "each alone"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_muon_steps_as_torchs_does_matrix_by_matrix(weight_decay, together):
    shapes = [(16, 16), (32, 16), (16, 32), (16, 16), (1, 16), (16, 16)]
    ours, torchs = ([torch.nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2))
    optimizer = Muon(ours, lr=0.01, weight_decay=weight_decay, dtype=torch.bfloat16)
    optimizer.most_elements, optimizer.iteration = together, jordans_iteration
    oracle = torch.optim.Muon(torchs, lr=0.01, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
    torch.manual_seed(0)
    for _ in range(4):
        for left, right in zip(ours[:-1], torchs):  # the last has no gradient
            left.grad = right.grad = torch.randn(left.shape)
        optimizer.step()
        oracle.step()
        for left, right in zip(ours, torchs):
            torch.testing.assert_close(left, right, rtol=0, atol=1e-6)


def test_muon_multiplies_in_bfloat16_only_where_that_is_fast(monkeypatch):
    steps = {}
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        monkeypatch.setattr(optimizer_module, "choose_precision", lambda *_, found=dtype: found)
        model = tiny_model()
        updater(model, optimizer="muon").update([batch_of(pairs(8))], 0.01)
        steps[dtype] = model.encoder.layers[0].feed_forward.inner.weight
    assert torch.equal(steps[torch.float16], steps[torch.float32])
    assert not torch.equal(steps[torch.bfloat16], steps[torch.float32])
    # Of steps of 0.01
    torch.testing.assert_close(steps[torch.bfloat16], steps[torch.float32], rtol=0, atol=2e-3)
