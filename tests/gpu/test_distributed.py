"""DDP and FSDP2 with NCCL, by one process: NCCL allows one process on each GPU."""

import pytest
import torch
import torch.distributed as dist

from tests.helpers.updates import batch_of, packed_batch_of, pairs, tiny_model
from transformer_mt.checkpoint import load_model_weights
from transformer_mt.config import TrainConfig
from transformer_mt.ranks import Ranks
from transformer_mt.update.loss import CrossEntropy
from transformer_mt.update.optimizer import build_optimizer, load_optimizer_tensors, optimizer_tensors
from transformer_mt.update.sharding import full_weights, wrap_distributed
from transformer_mt.update.step import Objective, Updater


@pytest.fixture
def group(device):
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def updater(device, parallel, optimizer, dtype=torch.float32, compiled=False):
    model = tiny_model().to(device)
    objective = Objective(model, CrossEntropy(0.1), compiled)
    if parallel is not None:  # ddp is for two ranks or more; the group has one
        objective = wrap_distributed(
            objective,
            model.blocks,
            TrainConfig(parallel=parallel),
            Ranks(size=2 if parallel == "ddp" else 1),
            device,
        )
    made = build_optimizer(model, TrainConfig(optimizer=optimizer, eps=1e-3))
    return model, Updater(objective, made, device, dtype, 1.0, Ranks())


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_updates_are_those_of_one_process(device, group, parallel, optimizer):
    plain, shared = updater(device, None, optimizer), updater(device, parallel, optimizer)
    for seed in range(3):
        batches = [batch_of(pairs(5, seed)), batch_of(pairs(7, seed + 10))]
        expected, found = (each.update(batches, 0.01).result() for _, each in (plain, shared))
        assert found.loss == pytest.approx(expected.loss, rel=1e-4)
    expected, found = (full_weights(model) for model, _ in (plain, shared))
    assert expected.keys() == found.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, atol=2e-3 if optimizer == "muon" else 1e-4, rtol=1e-3)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_learns_compiled(device, group, parallel, dtype):
    torch._dynamo.reset()
    _, run = updater(device, parallel, "muon", dtype, compiled=True)
    losses = [run.update([packed_batch_of(pairs(8))], 0.01).result().loss for _ in range(20)]
    assert losses[-1] < 0.8 * losses[0]
    torch._dynamo.reset()


def test_a_state_saved_from_shards_is_read_by_one_process(device, group):
    model, run = updater(device, "fsdp", "muon")
    run.update([batch_of(pairs(8))], 0.01).result()
    weights, moments = full_weights(model), optimizer_tensors(run.optimizer, model)
    other, alone = updater(device, None, "muon")
    load_model_weights(other, weights, "here")
    load_optimizer_tensors(alone.optimizer, other, moments)
    for each in (run, alone):
        each.update([batch_of(pairs(9, 3))], 0.01).result()
    for name, weight in full_weights(model).items():
        torch.testing.assert_close(full_weights(other)[name], weight, atol=2e-3, rtol=1e-3)


def test_small_values_travel_between_cpus(device, group):
    ranks = Ranks(size=1)
    assert ranks.gather({"a": [1, "ü"]}) == [{"a": [1, "ü"]}] and ranks.sum(1.5, 2.0) == [1.5, 2.0]
