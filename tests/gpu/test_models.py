"""Every mechanism of attention computes on a GPU what it computes on the CPU."""

import copy

import pytest
import torch

from tests.unit.model.test_cached_step import PAIRWISE, _name, batch, built  # noqa: F401 - `batch` is a fixture
from transformer_mt.device import autocast
from transformer_mt.update.loss import CrossEntropy
from transformer_mt.update.step import Objective


@pytest.mark.parametrize("config", PAIRWISE, ids=_name)
@torch.inference_mode()
def test_forward_and_steps_are_those_of_the_cpu(config, batch, device):  # noqa: F811
    src, src_mask, tgt = batch
    model = built(config)
    expected = model(src, src_mask, tgt)
    model.to(device)
    src, src_mask, tgt = src.to(device), src_mask.to(device), tgt.to(device)
    torch.testing.assert_close(model(src, src_mask, tgt).cpu(), expected, atol=1e-4, rtol=1e-3)
    state = model.start(model.encode(src, src_mask), src_mask)
    for t in range(tgt.size(1)):
        logits, state = model.step(tgt[:, t], state)
        torch.testing.assert_close(logits.cpu(), expected[:, t], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("config", PAIRWISE, ids=_name)
def test_gradients_in_half_precision_point_where_those_of_float32_do(config, batch, device, dtype):  # noqa: F811
    from transformer_mt.data.batches.batch import _with_real_positions

    if config.attention.hard:
        pytest.skip("draws at random in training")
    src, src_mask, tgt = batch
    tgt_out = torch.cat([tgt[:, 1:], torch.full_like(tgt[:, :1], 3)], dim=1)
    prepared = _with_real_positions(src, src_mask, tgt, tgt_out).to(device)
    model = built(config).to(device).train()
    for module in model.modules():
        if hasattr(module, "p"):
            module.p = 0.0
    gradients = []
    for kind in (torch.float32, dtype):
        own = copy.deepcopy(model)
        with autocast(device, kind):
            loss, _ = Objective(own, CrossEntropy(0.1))(prepared)
        (loss / prepared.num_tokens).backward()
        gradients.append(
            torch.cat([p.grad.flatten().float() for p in own.parameters() if p.grad is not None])
        )
    assert gradients[1].isfinite().all()
    assert torch.nn.functional.cosine_similarity(*gradients, dim=0) > 0.97
