"""Packed updates on a GPU: the same captured as CUDA graphs, compiled, and computed as usual."""

import pytest
import torch

from tests.helpers.updates import batch_of, packed_batch_of, pairs, tiny_model
from transformer_mt.config import TrainConfig
from transformer_mt.device import autocast
from transformer_mt.ranks import Ranks
from transformer_mt.update import captured as captured_module
from transformer_mt.update.captured import CapturedUpdater
from transformer_mt.update.loss import CrossEntropy
from transformer_mt.update.optimizer import build_optimizer
from transformer_mt.update.step import Objective, Updater


def updater_of(kind, device, dtype=torch.float32, compiled=False, micro_batch_tokens=0, **settings):
    model = tiny_model(dropout=0.1).to(device).train()
    config = {"eps": 1e-3, **settings}
    optimizer = build_optimizer(model, TrainConfig(**config))
    objective = Objective(model, CrossEntropy(0.1), compiled, copies_weights=True)
    torch.manual_seed(1)
    return kind(objective, optimizer, device, dtype, 1.0, Ranks(), micro_batch_tokens)


def batch(seed):
    """A batch whose shape does not depend on the seed."""
    return packed_batch_of(pairs(24, seed), num_rows=32)


def trained(updater, updates=6, batches=1):
    results = [
        updater.update([batch(batches * i + j) for j in range(batches)], 0.01).result()
        for i in range(updates)
    ]
    return results, [parameter.detach().cpu() for parameter in updater._parameters]


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "muon"])
@pytest.mark.parametrize("settings", [{}, {"batches": 3}, {"micro_batch_tokens": 300}], ids=str)
def test_captured_updates_are_the_usual_ones(cuda, optimizer, settings):
    """Also their dropout, and the random state after them, which a resumed run continues with."""
    batches, micro = settings.get("batches", 1), settings.get("micro_batch_tokens", 0)
    trainings = []
    for kind in (Updater, CapturedUpdater):
        run = updater_of(kind, cuda, micro_batch_tokens=micro, optimizer=optimizer)
        trainings.append((*trained(run, batches=batches), torch.cuda.get_rng_state()))
    assert run._graphs is not None
    for usual, captured in zip(trainings[0][0], trainings[1][0]):
        assert captured.num_tokens == usual.num_tokens
        assert captured.loss == pytest.approx(usual.loss, rel=1e-4)
        assert captured.grad_norm == pytest.approx(usual.grad_norm, rel=1e-3)
    for usual, captured in zip(trainings[0][1], trainings[1][1]):
        torch.testing.assert_close(captured, usual, atol=2e-3 if optimizer == "muon" else 1e-4, rtol=1e-3)
    assert torch.equal(trainings[0][2], trainings[1][2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("model", [{}, {"position": "rotary"}, {"position": "relative"}], ids=str)
def test_packed_sentences_have_the_loss_of_padded_ones(device, dtype, model):
    network, rows = tiny_model(**model).to(device), pairs(24)
    losses = []
    for made in (batch_of(rows), packed_batch_of(rows, 128), packed_batch_of(rows, 128, num_rows=8)):
        with autocast(device, dtype):
            losses.append(Objective(network, CrossEntropy(0.1))(made.to(device))[0].item())
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=tolerance)


def test_dropout_differs_from_update_to_update(cuda):
    run = updater_of(CapturedUpdater, cuda)
    losses = {run.update([batch(0)], 0.0).result().loss for _ in range(8)}
    assert len(losses) == 8


def test_an_update_that_is_not_finite_changes_nothing(cuda):
    run = updater_of(CapturedUpdater, cuda)
    trained(run)
    bias = run._objective.model.encoder.layers[0].feed_forward.outer.bias
    kept = bias.data[0].clone()
    bias.data[0] = float("nan")
    before = [parameter.detach().clone() for parameter in run._parameters]
    assert run.update([batch(0)], 0.01).result().skipped
    for parameter, old in zip(run._parameters, before):
        torch.testing.assert_close(parameter.detach(), old, equal_nan=True, rtol=0, atol=0)
    bias.data[0] = kept
    assert not run.update([batch(0)], 0.01).result().skipped


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_captured_and_compiled_updates_learn_as_usual_ones(cuda, optimizer):
    torch._dynamo.reset()
    ratios = []
    for compiled in (False, True):
        run = updater_of(CapturedUpdater, cuda, torch.bfloat16, compiled, optimizer=optimizer)
        results = [run.update([batch(0)], 0.01).result() for _ in range(60)]
        assert run._graphs is not None
        ratios.append(results[-1].loss / results[0].loss)
    torch._dynamo.reset()
    assert max(ratios) < 0.7
    assert ratios[1] == pytest.approx(ratios[0], rel=0.1)


def test_what_cannot_be_captured_is_computed_as_usual(cuda, monkeypatch, capsys):
    run = updater_of(CapturedUpdater, cuda)
    whole = Objective.forward

    def waits(self, batch):
        batch.src.sum().item()
        return whole(self, batch)

    monkeypatch.setattr(Objective, "forward", waits)
    results, _ = trained(run)
    assert run._graphs is None
    assert all(result.num_tokens and not result.skipped for result in results)
    assert capsys.readouterr().err.count("not captured as CUDA graphs") == 1


def test_too_little_memory_for_a_graph_halves_the_batch(cuda, monkeypatch, capsys):
    made = captured_module._Graphs

    def scarce(updater, batch):
        if len(batch.src) > 16:
            raise torch.OutOfMemoryError("no room")
        return made(updater, batch)

    monkeypatch.setattr(captured_module, "_Graphs", scarce)
    run = updater_of(CapturedUpdater, cuda)
    halved, _ = trained(run, updates=9)
    expected, _ = trained(updater_of(Updater, cuda), updates=9)
    assert run._graphs is not None and run._graphs.batch.src.size(0) == 16
    assert [r.num_tokens for r in halved] == [r.num_tokens for r in expected]
