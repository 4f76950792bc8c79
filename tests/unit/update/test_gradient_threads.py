"""Gradients by several threads, each from a part of the batch."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.conftest import ROOT, TINY, train_interrupted
from tests.helpers.faults import parts_of_one_position
from tests.helpers.updates import CPU, batch_of, pairs, tiny_model
from transformer_mt.config import Config, TrainConfig, load_config
from transformer_mt.config.model_section import AttentionConfig
from transformer_mt.ranks import Ranks
from transformer_mt.training import train
from transformer_mt.update import acceleration as module
from transformer_mt.update.acceleration import gradient_threads
from transformer_mt.update.loss import CrossEntropy
from transformer_mt.update.optimizer import build_optimizer
from transformer_mt.update.step import Objective, Updater


@pytest.fixture(autouse=True)
def three_threads(monkeypatch):
    """However few cores there are, and however small the parts."""
    parts_of_one_position(monkeypatch)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def trained(model, threads, batches, updates=4, dtype=torch.float32):
    optimizer = build_optimizer(model, TrainConfig(eps=1e-3, optimizer="adamw"))
    run = Updater(Objective(model, CrossEntropy(0.1)), optimizer, CPU, dtype, 1.0, Ranks(), threads=threads)
    torch.manual_seed(5)
    results = [run.update(batches, 0.01).result() for _ in range(updates)]
    return results, {name: weight.detach().clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize(
    "changes, dtype",
    [
        ({}, torch.float32),
        ({}, torch.bfloat16),
        ({"position": "relative"}, torch.bfloat16),
        ({"attention": AttentionConfig(score="additive"), "tie_embeddings": False}, torch.float32),
    ],
    ids=["plain", "plain in bfloat16", "relative", "additive, untied"],
)
def test_threads_make_the_update_that_one_makes(changes, dtype):
    """Also of several batches, and of one with fewer sentences than threads."""
    batches = [batch_of(pairs(11)), batch_of(pairs(2, seed=1))]
    (alone, weights), (together, same) = (
        # GELU, as a ReLU that rounding moves across zero changes the gradient by more than rounding.
        trained(tiny_model(feed_forward="gelu", **changes), threads, batches, updates=2, dtype=dtype)
        for threads in (1, 3)
    )
    close = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.05, "atol": 1e-2}
    for name, weight in weights.items():
        torch.testing.assert_close(weight, same[name], **close)
    for left, right in zip(alone, together):
        assert left.num_tokens == right.num_tokens
        assert (left.loss, left.nll) == pytest.approx((right.loss, right.nll), rel=5e-3)


def test_masks_are_the_same_each_time():
    """Although the threads draw them at the same time."""
    batch = batch_of(pairs(1) * 9)  # nine times the same pair: only the masks differ
    runs = [trained(tiny_model(dropout=0.3), 3, [batch]) for _ in range(3)]
    for _, weights in runs[1:]:
        assert all(torch.equal(weight, weights[name]) for name, weight in runs[0][1].items())


def test_each_part_of_a_batch_has_masks_of_its_own():
    """Equal pairs with equal masks would have the gradient of one."""
    model, embedded = tiny_model(dropout=0.3), []
    model.encoder.layers[0].register_forward_pre_hook(lambda _, inputs: embedded.append(inputs[0].detach()))
    trained(model, 3, [batch_of(pairs(1) * 9)], updates=1)
    first, second, third = embedded
    assert not torch.equal(first, second) and not torch.equal(second, third)


def test_torchs_own_threads_are_back_after_an_error():
    model = tiny_model()
    model.encoder.layers[0].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trained(model, 3, [batch_of(pairs(6))])
    # A new thread has the number that was set last, in whatever thread.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 3


def test_a_training_by_threads_resumes_bit_for_bit(write_config, tmp_path):
    config = load_config(
        write_config(
            data={"train": {"toy": "train", "size": 150}, "valid": {"toy": "valid", "size": 5}, "test": []},
            model={**TINY["model"], "dropout": 0.2},
            train={"max_updates": 8, "average_checkpoints": 1, "save_every": 4},
        )
    )
    whole = train(config, tmp_path / "whole")
    train_interrupted(config, tmp_path / "stopped", 5)
    stopped = train(config, tmp_path / "stopped")
    assert (whole / "model.safetensors").read_bytes() == (stopped / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    "changes, dtype, threads",
    [
        ({}, torch.float32, 3),
        ({"model": {"attention_dropout": 0.1}}, torch.bfloat16, 3),
        ({"model": {"attention_dropout": 0.1}}, torch.float32, 1),
        ({}, torch.float16, 1),
        ({"model": {"attention": {"hard": True}}}, torch.float32, 1),
        ({"model": {"kind": "recurrent"}}, torch.float32, 1),
        ({"train": {"compile": True}}, torch.float32, 1),
        ({"train": {"activation_checkpointing": True}}, torch.float32, 1),
    ],
)
def test_other_randomness_than_dropout_keeps_to_one_thread(changes, dtype, threads):
    config = Config.model_validate({**TINY, **changes})
    assert gradient_threads(config, CPU, dtype) == threads
    assert gradient_threads(config, torch.device("cuda"), dtype) == 1


@pytest.mark.parametrize(
    "user, found",
    [({}, "1000 None"), ({"GOMP_SPINCOUNT": "7"}, "7 None"), ({"OMP_WAIT_POLICY": "active"}, "None active")],
)
def test_waiting_threads_leave_their_core_unless_the_user_chose(user, found):
    """The setting is there before torch is imported."""
    code = (
        "import sys, os, transformer_mt\nassert 'torch' not in sys.modules\n"
        "print(os.environ.get('GOMP_SPINCOUNT'), os.environ.get('OMP_WAIT_POLICY'))"
    )
    clean = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    environment = {**clean, **user, "PYTHONPATH": str(ROOT)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert result.stdout.strip() == found, result.stderr


class Twice(torch.nn.Module):
    """Uses its weight twice. The thread with `waiting` sentences waits between, until the other is done."""

    def __init__(self, waiting):
        super().__init__()
        self.layer, self.waiting, self.done = torch.nn.Linear(64, 64, bias=False), waiting, threading.Event()

    def forward(self, batch):
        x = self.layer(torch.linspace(0.1, 1.0, 64 * len(batch.src)).view(-1, 64)).float()
        if len(batch.src) == self.waiting:
            self.done.wait(20)
        loss = self.layer(x).float().sin().sum()
        if len(batch.src) != self.waiting:
            loss.register_hook(lambda gradient: self.done.set())
        return loss, loss.detach()


def test_a_weight_that_is_used_twice_has_one_gradient_whichever_thread_is_first():
    """torch has one cache of cast weights for all threads; it is emptied when one of them leaves autocast."""
    gradients = []
    for waiting in (1, 2):
        torch.manual_seed(1)
        model = Twice(waiting)
        torch.nn.init.normal_(model.layer.weight)
        threads = module.GradientThreads(model, list(model.parameters()), torch.bfloat16, 2)
        threads.backward(batch_of(pairs(3)), lambda loss: loss)
        gradients.append(model.layer.weight.grad)
    assert torch.equal(*gradients)
