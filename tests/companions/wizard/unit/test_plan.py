"""`train --plan`: the memory of an update without computing it, and what the plan advises."""

import re

import numpy as np
import pytest
import torch

from tests.conftest import TINY
from transformer_mt.cli import main
from transformer_mt.companions.wizard.plan import (
    Lengths,
    Machine,
    plan_training,
    typical_batches,
    update_memory,
)
from transformer_mt.config import Config
from transformer_mt.config.resolve import updates_of_epochs
from transformer_mt.errors import InputError
from transformer_mt.run.batch_budget import longest_batch

VOCABULARY = 8000


def config(model=None, **train):
    sizes = {"d_model": 64, "d_ff": 256, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}
    values = {
        **TINY,
        "model": {**sizes, **(model or {})},
        "train": {"optimizer": "adamw", "batch_tokens": 4096, "max_updates": 1000, **train},
    }
    return Config.model_validate(values)


def lengths(pairs=20_000, copies=1.0, seed=0):
    src, tgt = np.random.default_rng(seed).integers(5, 40, (2, pairs))
    return Lengths(src, tgt, VOCABULARY, copies)


def memory(chosen, tokens=4096, length=16):
    return update_memory(chosen, VOCABULARY, longest_batch(length, tokens), torch.bfloat16)


def keys(plan):
    return [change.keys for change in plan.changes]


class FakeMachine(Machine):
    """A machine with this memory, which says how long an update takes, and the most bytes that one took."""

    def __init__(self, free=1e12, seconds=1.0, peak=1.0, kind="cpu"):
        super().__init__(torch.device(kind), torch.bfloat16, free)
        for name, value in (("says", (seconds, peak)), ("asked", [])):
            object.__setattr__(self, name, value)

    def measured(self, chosen, vocab_size, sample, tokens, micro_batch_tokens):
        self.asked.append((tokens, micro_batch_tokens))
        return self.says


def plan_of(chosen, pairs, **machine):
    return plan_training(chosen, pairs, FakeMachine(**machine))


def test_weights_gradients_and_moments_are_counted_to_the_byte():
    """AdamW has two moments of each number, Muon one of those of its matrices; step counts are small."""
    of_adamw, of_muon = memory(config()), memory(config(optimizer="muon"))
    assert of_adamw.state_bytes == pytest.approx(16 * sum(of_adamw.parameters.values()), rel=1e-3)
    matrices = 2 * (4 * 64 * 64 + 2 * 64 * 256) + 4 * 64 * 64
    assert of_adamw.state_bytes - of_muon.state_bytes == pytest.approx(4 * matrices, rel=1e-2)


def test_memory_grows_with_the_tokens_and_less_with_checkpointed_activations():
    kept, again = (
        memory(chosen, 8192).peak_bytes - memory(chosen, 4096).peak_bytes
        for chosen in (config(), config(activation_checkpointing=True))
    )
    assert 0 < again < 0.7 * kept


def test_epochs_and_tokens_are_those_of_the_batches():
    pairs = lengths()
    alone = plan_of(config(), pairs)
    assert alone.target_tokens * 1000 == pytest.approx(alone.epochs * pairs.tgt.sum(), rel=1e-3)
    assert not alone.packed and alone.update_tokens == 4096
    twice = plan_of(config(accumulate=2), pairs)
    assert twice.epochs == pytest.approx(2 * alone.epochs, rel=1e-6) and twice.update_tokens == 2 * 4096
    same = plan_of(config(update_tokens=4096), pairs)
    assert same.epochs == pytest.approx(alone.epochs, rel=0.01) and same.update_tokens == 4096
    assert plan_of(config(), lengths(copies=10.0)).epochs == pytest.approx(alone.epochs / 10)
    assert plan_of(config(max_epochs=2.0), pairs).epochs == pytest.approx(2, rel=0.01)


def test_a_gpu_is_planned_with_as_gpus_compute():
    """With packed batches, and code that keeps more of an update than that of a CPU does."""
    plan = plan_of(config(), lengths(), free=2e9, kind="cuda")
    assert plan.packed and plan.padding < 0.1
    assert not plan_of(config(packed=False), lengths(), free=2e9, kind="cuda").packed
    # With less memory than the weights need, the peaks are computed, not measured.
    gpu_peak, cpu_peak = (
        plan_of(config(packed=True), lengths(), free=1e6, kind=kind).peak_bytes for kind in ("cuda", "cpu")
    )
    assert gpu_peak > cpu_peak


def test_random_packed_batches_are_as_full_as_those_of_a_training():
    rng = np.random.default_rng(0)
    sample = [(int(n), int(n)) for n in np.clip(rng.lognormal(2.5, 0.8, 500), 2, 64)]
    batches = typical_batches(config(packed=True), VOCABULARY, sample, 4096)
    for _, batch in zip(range(3), batches):
        assert batch.src.shape == (32, 128)
        assert batch.num_tokens > 0.85 * 4096


def test_this_machine_is_measured():
    """And a training of more than a day is said to be one."""
    slow = FakeMachine(seconds=100.0)
    plan = plan_training(config(), lengths(), slow)
    assert slow.asked == [(4096, 4096)] and plan.seconds == 100.0
    assert keys(plan) == ["train.max_updates=864"]
    tiny = FakeMachine(free=0.5 * memory(config()).state_bytes)
    plan = plan_training(config(), lengths(), tiny)
    assert plan.seconds is None and not tiny.asked and keys(plan) == ["model.d_model"]


def test_what_does_not_fit_is_advised_so_that_it_fits():
    free = 0.8 * memory(config()).peak_bytes
    small = FakeMachine(free=free)
    key, tokens = keys(plan_training(config(), lengths(), small))[0].split("=")
    assert key == "train.micro_batch_tokens" and 256 <= int(tokens) < 4096
    assert small.asked == [(4096, int(tokens))]  # what would not fit is not tried
    followed = plan_of(config(micro_batch_tokens=int(tokens)), lengths(), free=free)
    assert followed.peak_bytes <= followed.available_bytes and not followed.changes


def test_one_sentence_that_does_not_fit_needs_checkpointed_activations():
    long = Lengths(np.array([500, 400]), np.array([480, 500]), VOCABULARY)
    whole = memory(config(batch_tokens=500), 500, 500)
    free = whole.state_bytes + (whole.peak_bytes - whole.state_bytes) / 2
    plan = plan_of(config(batch_tokens=500), long, free=free)
    assert keys(plan) == ["train.activation_checkpointing=true"]


def test_passes_that_could_be_one_are_advised_to_be():
    assert keys(plan_of(config(accumulate=4), lengths())) == ["train.batch_tokens=16384 train.accumulate=1"]
    assert keys(plan_of(config(update_tokens=16384), lengths())) == ["train.batch_tokens=16384"]


def test_auto_is_the_most_that_fits_the_memory():
    free = 5e8
    tokens = plan_of(config(batch_tokens="auto"), lengths(), free=free).update_tokens
    assert 0.75 * free < memory(config(), tokens, 39).peak_bytes <= 1.05 * free


def test_a_measured_peak_above_the_memory_is_never_answered_by_larger_passes():
    computed = memory(config()).peak_bytes
    plan = plan_of(config(), lengths(), free=1.3 * computed, peak=1.4 * computed)
    (advice,) = [each for each in keys(plan) if "micro_batch" in each]
    assert int(advice.partition("=")[2]) < 4096


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(InputError, match="train.parallel must be ddp on one device, but is fsdp"):
        plan_training(config(parallel="fsdp"), lengths())
    message = "model.kind must be transformer to plan a training, but is recurrent"
    with pytest.raises(InputError, match=message):
        plan_training(config({"kind": "recurrent"}), lengths())


def test_updates_of_epochs_are_not_rounded_up_for_nothing():
    assert updates_of_epochs(7, 29 / 7) == 29 and updates_of_epochs(1.1, 100) == 110
    assert updates_of_epochs(1.0, 10.2) == 11


# `transformer-mt train CONFIG --plan`.


DATA = {"train": {"toy": "train", "size": 400}}


def planned(capfd, *words):
    status = main([str(word) for word in ("train", *words)])
    out, err = capfd.readouterr()
    return status, out, err


@pytest.fixture
def path(write_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_config(data=DATA)


def test_a_price_without_a_plan_is_refused(path, tmp_path, capfd):
    status, _, err = planned(capfd, path, "--price", "2.5")
    assert status == 2 and "--price must be given with --plan" in err and not (tmp_path / "runs").exists()


def test_a_plan_for_this_machine_is_measured_and_trains_nothing(path, tmp_path, capfd):
    status, out, err = planned(capfd, path, "--plan", "--price", "3600", "train.max_updates=500")
    assert status == 0 and "measuring this machine" in err
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert list(rows) == ["parameters", "epoch", "update", "training", "memory", "time", "cost"]
    assert re.search(r"parameters +[\d,]+: src_embedding [\d,]+, encoder [\d,]+, decoder", out)
    cost = float(re.search(r"([\d.,]+) at 3600 an hour", rows["cost"])[1].replace(",", ""))
    per_update = float(re.search(r"([\d.]+) s an update", rows["time"])[1])
    assert cost == pytest.approx(500 * per_update, rel=0.01)  # an hour's price is its seconds
    assert "393 pairs" in rows["epoch"] and "500 updates" in rows["training"]
    assert "s an update, measured; without validations" in rows["time"]  # and what other programs use
    assert not (tmp_path / "runs").exists()


def test_a_plan_of_packed_batches_is_one(path, capfd):
    status, out, _ = planned(capfd, path, "--plan", "train.packed=true", "train.batch_tokens=1024")
    assert status == 0 and "target tokens; packed, " in out


def test_a_plan_of_several_processes_is_refused(path, capfd):
    status, out, err = planned(capfd, path, "--plan", "--gpus", "2")
    assert (status, out) == (2, "")
    assert "--plan must run in one process; leave out --gpus and torchrun" in err.splitlines()[-1]
