"""Updates on a GPU: the same as on the CPU, in each precision, without waiting, compiled once,
and resumed.
"""

import pytest
import torch

from tests.helpers.updates import batch_of, packed_batch_of, pairs, tiny_model
from tests.unit.update.test_optimizer import jordans_iteration
from transformer_mt import train
from transformer_mt.config import TrainConfig
from transformer_mt.config.load import load_config
from transformer_mt.data.batches.batch import Rows
from transformer_mt.data.batches.batching import BatchPrefetcher, TrainingBatches
from transformer_mt.ranks import Ranks
from transformer_mt.run.batch_budget import find_budget, longest_batch, peak_memory, reset_peak
from transformer_mt.run.run import random_states, restore_random_states
from transformer_mt.run_folder import RunFolder
from transformer_mt.training import open_run
from transformer_mt.update.captured import CapturedUpdater
from transformer_mt.update.loss import CrossEntropy
from transformer_mt.update.optimizer import Muon, build_optimizer, optimizer_tensors
from transformer_mt.update.step import Objective, Updater

CPU = torch.device("cpu")
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def updater_on(place, dtype=torch.float32, compiled=False, model=None, **config):
    model = (model or tiny_model()).to(place)
    optimizer = build_optimizer(model, TrainConfig(**config))
    return Updater(Objective(model, CrossEntropy(0.1), compiled), optimizer, place, dtype, 1.0, Ranks())


def weights(updater):
    return {name: parameter.detach().cpu() for name, parameter in updater._objective.model.named_parameters()}


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "muon"])
def test_updates_are_those_of_the_cpu(device, optimizer):
    updaters = [updater_on(place, optimizer=optimizer, eps=1e-3) for place in (CPU, device)]
    for seed in range(3):
        expected, found = (u.update([batch_of(pairs(9, seed))], 0.01).result() for u in updaters)
        assert found.num_tokens == expected.num_tokens
        assert found.loss == pytest.approx(expected.loss, rel=1e-4)
        assert found.grad_norm == pytest.approx(expected.grad_norm, rel=1e-3)
    atol = 2e-3 if optimizer == "muon" else 1e-4  # Muon multiplies in bfloat16
    for name, weight in weights(updaters[0]).items():
        torch.testing.assert_close(weights(updaters[1])[name], weight, atol=atol, rtol=1e-3)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_precision_learns(device, precision):
    run, batch = updater_on(device, PRECISIONS[precision]), batch_of(pairs(8))
    losses = [run.update([batch], 0.01).result().loss for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]
    assert all(weight.dtype == torch.float32 for weight in weights(run).values())


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_an_update_that_is_not_finite_changes_nothing(device, precision, optimizer):
    run, batch = (
        updater_on(device, PRECISIONS[precision], optimizer=optimizer, weight_decay=0.1),
        batch_of(pairs(8)),
    )
    run.update([batch], 0.01).result()
    model = run._objective.model
    bias = model.encoder.layers[0].feed_forward.outer.bias
    kept = bias.data[0].clone()
    bias.data[0] = float("nan")
    before = weights(run)
    moments = {name: value.clone() for name, value in optimizer_tensors(run.optimizer, model).items()}
    assert run.update([batch], 0.01).result().skipped
    for name, weight in weights(run).items():
        torch.testing.assert_close(weight, before[name], equal_nan=True, rtol=0, atol=0)
    for name, value in optimizer_tensors(run.optimizer, model).items():
        assert torch.equal(value, moments[name]), name
    bias.data[0] = kept
    assert not run.update([batch], 0.01).result().skipped


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("optimizer", ["adamw", "adam", "muon"])
def test_an_update_never_waits_for_the_device(cuda, precision, optimizer):
    run = updater_on(cuda, PRECISIONS[precision], optimizer=optimizer)
    batches = [batch_of(pairs(8, seed)).pinned() for seed in range(4)]
    run.update([batches[0]], 0.01).result()  # makes the moments
    torch.cuda.set_sync_debug_mode("error")
    try:
        results = [run.update([batch], 0.01) for batch in batches[1:]]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(result.result().num_tokens for result in results)


def test_a_compiled_update_is_the_plain_one(device):
    torch._dynamo.reset()
    updaters = [updater_on(device, compiled=compiled, eps=1e-3) for compiled in (False, True)]
    for seed in range(3):
        batch = packed_batch_of(pairs(9, seed), num_rows=8)
        results = [u.update([batch], 0.01).result() for u in updaters]
        assert results[1].loss == pytest.approx(results[0].loss, rel=1e-4)
    for name, weight in weights(updaters[0]).items():
        torch.testing.assert_close(weights(updaters[1])[name], weight, atol=1e-4, rtol=1e-3)
    torch._dynamo.reset()


def test_muon_steps_as_torchs_does(device):
    shapes = [(16, 16), (32, 16), (16, 32), (16, 16)]
    ours, theirs = (
        [torch.nn.Parameter(torch.ones(shape, device=device)) for shape in shapes] for _ in range(2)
    )
    optimizer = Muon(ours, lr=0.01, weight_decay=0.1, dtype=torch.bfloat16)
    optimizer.iteration = jordans_iteration
    oracle = torch.optim.Muon(theirs, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    torch.manual_seed(0)
    for _ in range(4):
        for left, right in zip(ours, theirs):
            left.grad = right.grad = torch.randn(left.shape, device=device)
        optimizer.step()
        oracle.step()
    for left, right in zip(ours, theirs):
        # Bfloat16 products, summed in another order
        torch.testing.assert_close(left, right, rtol=0, atol=2e-4)


@pytest.fixture
def config(write_config, tmp_path, monkeypatch, device):
    """A function: TINY on the device, with overrides."""
    monkeypatch.chdir(tmp_path)
    path = write_config()
    return lambda *words: load_config(path, [f"train.device={device}", *words])


def test_prefetched_batches_are_pinned_and_the_same(cuda, config):
    data = open_run(config(), RunFolder("runs/x")).data
    made = [BatchPrefetcher(TrainingBatches(Rows(data.train), 600, 1), 2, place) for place in (CPU, cuda)]
    for _ in range(3):
        plain, pinned = (each.next_update() for each in made)
        for a, b in zip(plain, pinned):
            assert b.src.is_pinned() and not a.src.is_pinned() and torch.equal(a.src, b.src)
            assert torch.equal(b.to(cuda).src.cpu(), a.src)


@pytest.mark.parametrize(
    "words", [[], ["train.precision=fp16"], ["train.optimizer=muon", "train.compile=false"]]
)
def test_a_run_resumes_where_it_stopped(config, words):
    same = [
        "train.precision=bf16",
        "model.dropout=0.2",
        "train.schedule=constant",
        "train.average_checkpoints=1",
        "train.eps=1e-3",  # else Adam makes steps of rounding errors, where a gradient is zero but for them
    ]
    ends = []
    for name, stops in (("straight", [24]), ("stopped", [12, 24])):
        for stop in stops:
            folder = train(config(*same, *words, f"name={name}", f"train.max_updates={stop}"))
        ends.append(open_run(config(*same, *words, f"name={name}"), RunFolder(folder)))
    straight, stopped = (dict(end.model.named_parameters()) for end in ends)
    for name, weight in straight.items():  # some kernels add in any order: not bit for bit
        torch.testing.assert_close(stopped[name], weight, atol=2e-2, rtol=2e-2)
    assert ends[0].progress.tokens == ends[1].progress.tokens


def test_random_states_are_restored(device):
    states = random_states(device, Ranks())
    drawn = torch.rand(5, device=device)
    restore_random_states(states, device, Ranks(), seed=0)
    assert torch.equal(torch.rand(5, device=device), drawn)


def test_running_out_of_memory_for_real_makes_micro_batches(cuda):
    """The process may use so little memory that only half of the batch fits."""
    torch.cuda.empty_cache()
    model = tiny_model(d_model=256, d_ff=1024)
    run = updater_on(cuda, model=model)
    batch = batch_of(pairs(4000))
    run.update([batch_of(pairs(20))], 0.01).result()
    torch.cuda.reset_peak_memory_stats()
    run.update([batch], 0.01).result()
    enough = torch.cuda.max_memory_reserved()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(cuda).total_memory
    torch.cuda.set_per_process_memory_fraction(0.6 * enough / total)
    try:
        assert not run.update([batch], 0.01).result().skipped
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    assert 0 < run.micro_batch_tokens < batch.num_positions


def test_the_largest_budget_fits(cuda, config):
    total = torch.cuda.get_device_properties(cuda).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(min(1.0, 3e9 / total))
    try:
        run = open_run(config("train.batch_tokens=600"), RunFolder("runs/y"))
        tokens = find_budget(run.config, run.data, cuda)
        torch.cuda.empty_cache()
        reset_peak(cuda)
        batch = longest_batch(run.data.longest, tokens)
        run.updater.update([batch], 0.01).result()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert tokens >= 1024 and run.updater.micro_batch_tokens == 0 and peak_memory(cuda) <= 3e9


def test_auto_is_the_gpu_in_bf16_packed_and_captured(cuda, config):
    run = open_run(config("train.device=auto", "train.precision=auto"), RunFolder("runs/z"))
    assert run.device.type == "cuda" and run.updater.dtype in (torch.bfloat16, torch.float16)
    assert isinstance(run.updater, CapturedUpdater) and run.batches.shape is not None
