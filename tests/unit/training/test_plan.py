"""`train --plan`: the cost of an update without computing it, and what the plan advises."""

import numpy as np
import pytest
import torch
import yaml

from tests.conftest import ROOT, TINY
from transformer_mt.config import Config
from transformer_mt.errors import InputError
from transformer_mt.runs.resolve import updates_of_epochs
from transformer_mt.training.batch_budget import longest_batch
from transformer_mt.training.planning import plan as plan_module
from transformer_mt.training.planning.cluster import DEVICES, Cluster, Device, cluster_named
from transformer_mt.training.planning.lengths import Lengths
from transformer_mt.training.planning.plan import plan_training
from transformer_mt.training.planning.update_cost import muon_work, update_cost

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


def device(memory_gb=80.0, tflops=100.0, link_gb=100.0, network_gb=10.0):
    return Device("GPU", memory_gb, tflops, link_gb, network_gb)


def cost(chosen, tokens=4096, length=16):
    sides = np.full(1, length)
    return update_cost(chosen, VOCABULARY, longest_batch(sides, sides, tokens), torch.bfloat16)


def keys(plan):
    return [change.keys for change in plan.changes]


def test_the_arithmetic_of_an_update_is_that_of_the_formula():
    """Six operations for each weight and token, forward and backward; the attention's own is little with
    short sentences.
    """
    d, f, layers = 64, 256, 1
    encoder = layers * (4 * d * d + 2 * d * f) + layers * 2 * d * d  # and the decoder's keys and values of it
    decoder = layers * (6 * d * d + 2 * d * f) + VOCABULARY * d
    assert cost(config()).flops == pytest.approx(6 * 4096 * (encoder + decoder), rel=0.05)


def test_muons_arithmetic_is_what_the_counter_finds():
    by_adamw, by_muon = config(), config(optimizer="muon")
    numbers, flops = muon_work(by_muon, VOCABULARY)
    assert flops == pytest.approx(cost(by_muon).flops - cost(by_adamw).flops, rel=1e-6)
    assert numbers == 2 * (4 * 64 * 64 + 2 * 64 * 256) + 4 * 64 * 64
    assert muon_work(by_adamw, VOCABULARY) == (0, 0.0)


def test_weights_gradients_and_moments_are_counted_to_the_byte():
    """AdamW has two moments of each number, Muon one of those of its matrices; step counts are small."""
    of_adamw, of_muon = cost(config()), cost(config(optimizer="muon"))
    assert of_adamw.state_bytes == pytest.approx(16 * of_adamw.parameters, rel=1e-3)
    numbers, _ = muon_work(config(optimizer="muon"), VOCABULARY)
    assert of_adamw.state_bytes - of_muon.state_bytes == pytest.approx(4 * numbers, rel=1e-2)


def test_memory_grows_with_the_tokens_and_less_with_checkpointed_activations():
    kept, again = config(), config(activation_checkpointing=True)
    grown = {
        name: cost(chosen, 8192).peak_bytes - cost(chosen, 4096).peak_bytes
        for name, chosen in (("kept", kept), ("again", again))
    }
    assert 0 < grown["again"] < 0.7 * grown["kept"]
    assert cost(again).flops > cost(kept).flops


def test_epochs_and_tokens_are_those_of_the_batches():
    pairs = lengths()
    alone = plan_training(config(), pairs, Cluster(1, device()))
    assert alone.target_tokens * 1000 == pytest.approx(alone.epochs * pairs.tgt.sum(), rel=1e-3)
    four = plan_training(config(accumulate=2), pairs, Cluster(2, device()))
    assert four.epochs == pytest.approx(4 * alone.epochs, rel=1e-6)
    assert (alone.update_tokens, four.update_tokens) == (4096, 4 * 4096)
    same = plan_training(config(update_tokens=4096), pairs, Cluster(2, device()))
    assert same.epochs == pytest.approx(alone.epochs, rel=0.01) and same.update_tokens == 4096
    assert plan_training(config(), lengths(copies=10.0), Cluster(1, device())).epochs == pytest.approx(
        alone.epochs / 10
    )
    assert plan_training(config(max_epochs=2.0), pairs, Cluster(1, device())).epochs == pytest.approx(
        2, rel=0.01
    )


def test_time_is_arithmetic_over_speed_and_no_less_than_starting_the_operations(monkeypatch):
    slow, fast = (plan_training(config(), lengths(), Cluster(1, device(tflops=t))) for t in (0.1, 0.2))
    assert slow.seconds == pytest.approx(2 * fast.seconds)
    at_once = plan_training(config(), lengths(), Cluster(1, device(tflops=1e9)))
    assert at_once.seconds == pytest.approx(
        (at_once.cost.pass_operations + at_once.cost.step_operations) * 1e-5, rel=0.05
    )


def test_what_is_sent_follows_the_keys():
    def sent(ranks=4, **train):
        return plan_training(config(**train), lengths(), Cluster(ranks, device())).sent_bytes

    parameters = cost(config()).parameters
    numbers, _ = muon_work(config(optimizer="muon"), VOCABULARY)
    assert sent(1) == 0
    assert sent(accumulate=4) == pytest.approx(3 / 4 * 8 * parameters)
    assert sent(optimizer="muon", share_muon=True) == pytest.approx(3 / 4 * (8 * parameters + 2 * numbers))
    layers = cost(config()).layer_parameters
    others = 8 * (parameters - layers)  # not in a layer: gathered once, in float32
    assert sent(parallel="fsdp", accumulate=2) == pytest.approx(2 * 3 / 4 * (12 * layers + others))
    assert sent(parallel="fsdp", fsdp_weights="bf16") == pytest.approx(3 / 4 * (8 * layers + others))


def test_a_slow_network_is_seen_in_the_time():
    within, between = (
        plan_training(config(), lengths(), Cluster(count, device(tflops=1e6, network_gb=0.01)))
        for count in (8, 16)
    )
    assert between.sending_seconds > 100 * within.sending_seconds
    assert between.seconds > between.sending_seconds > 0.9 * between.seconds
    assert "train.accumulate=2" in keys(between) and "train.accumulate=2" not in keys(within)


def test_what_does_not_fit_is_advised_so_that_it_fits():
    whole = plan_training(config(), lengths(), Cluster(1, device()))
    room = 0.6 * whole.peak_bytes / 1e9 / 0.9
    small = Cluster(1, device(memory_gb=room))
    (advice,) = keys(plan_training(config(), lengths(), small))
    key, tokens = advice.split("=")
    assert key == "train.micro_batch_tokens" and 256 <= int(tokens) < 4096
    followed = plan_training(config(micro_batch_tokens=int(tokens)), lengths(), small)
    assert followed.peak_bytes <= followed.available_bytes and not followed.changes
    # The state of two devices fits
    state = 0.7 * whole.state_bytes / 1e9 / 0.9
    assert (
        keys(plan_training(config(), lengths(), Cluster(4, device(memory_gb=state))))[0]
        == "train.parallel=fsdp"
    )
    assert keys(plan_training(config(), lengths(), Cluster(1, device(memory_gb=state)))) == ["model.d_model"]


def test_one_sentence_that_does_not_fit_needs_checkpointed_activations():
    long = Lengths(np.array([500, 400]), np.array([480, 500]), VOCABULARY)
    plan = plan_training(config(batch_tokens=500), long, Cluster(1, device()))
    room = (plan.state_bytes + (plan.peak_bytes - plan.state_bytes) / 2) / 1e9 / 0.9
    assert keys(plan_training(config(batch_tokens=500), long, Cluster(1, device(memory_gb=room)))) == [
        "train.activation_checkpointing=true"
    ]


def test_passes_that_could_be_one_are_advised_to_be():
    one = Cluster(1, device())
    assert keys(plan_training(config(accumulate=4), lengths(), one)) == [
        "train.batch_tokens=16384 train.accumulate=1"
    ]
    assert keys(plan_training(config(update_tokens=16384), lengths(), one)) == ["train.batch_tokens=16384"]


def test_several_devices_are_advised_to_keep_the_updates():
    assert (
        keys(plan_training(config(accumulate=2), lengths(), Cluster(2, device())))[-1]
        == "train.update_tokens=8192 train.accumulate=1"
    )
    assert not plan_training(config(update_tokens=8192), lengths(), Cluster(2, device())).changes


def test_muon_is_advised_to_be_shared_where_that_saves_time():
    wide = {"d_model": 512, "d_ff": 2048, "num_heads": 8}
    chosen = config(wide, optimizer="muon", update_tokens=8 * 512, batch_tokens=512)
    fast = plan_training(chosen, lengths(2000), Cluster(8, device(tflops=20, link_gb=900)))
    assert keys(fast) == ["train.share_muon=true"]
    slow = plan_training(chosen, lengths(2000), Cluster(8, device(tflops=20, link_gb=0.1)))
    assert "train.share_muon=true" not in keys(slow)
    shared = config(wide, optimizer="muon", update_tokens=8 * 512, batch_tokens=512, share_muon=True)
    followed = plan_training(shared, lengths(2000), Cluster(8, device(tflops=20, link_gb=900)))
    assert not followed.changes and followed.seconds < fast.seconds


def test_auto_is_the_most_that_fits_the_described_memory():
    plan = plan_training(config(batch_tokens="auto"), lengths(), Cluster(1, device(memory_gb=0.5)))
    assert 0.75 * plan.available_bytes < plan.peak_bytes <= plan.available_bytes


@pytest.mark.parametrize("batch_tokens", [4096, "auto"])
def test_a_gpu_of_this_machine_is_planned_with_as_gpus_compute(monkeypatch, batch_tokens):
    """Which keep more of an update than the paths of a CPU do."""
    ways = []

    def spy(*arguments):
        ways.append(arguments[4])
        return update_cost(*arguments)

    monkeypatch.setattr(plan_module, "update_cost", spy)
    monkeypatch.setattr(plan_module, "choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(plan_module, "choose_precision", lambda name, device: torch.bfloat16)
    monkeypatch.setattr(plan_module, "free_memory", lambda device: 1e9)
    for name in ("reset_peak", "peak_memory"):
        monkeypatch.setattr(plan_module, name, lambda device: 1)
    monkeypatch.setattr(plan_module, "seconds_per_update", lambda *arguments: 1.0)
    plan_training(config(batch_tokens=batch_tokens), lengths(), None)
    assert ways and all(ways)


def test_this_machine_is_measured(monkeypatch):
    """And a training of more than a day is said to be one."""
    measured = []

    def seconds(chosen, vocab_size, sample, tokens, micro_batch_tokens):
        measured.append((tokens, micro_batch_tokens))
        return 100.0

    monkeypatch.setattr(plan_module, "seconds_per_update", seconds)
    plan = plan_training(config(), lengths(), None)
    assert measured == [(4096, 4096)] and plan.how == "measured" and plan.seconds == 100.0
    assert keys(plan) == ["train.max_updates=864"]
    monkeypatch.setattr(plan_module, "free_memory", lambda device: 0.6 * cost(config()).peak_bytes)
    plan = plan_training(config(), lengths(), None)
    tokens, micro_batch_tokens = measured[-1]  # what would not fit is not tried
    assert tokens == 4096 and 256 <= micro_batch_tokens < 4096
    assert keys(plan)[0] == f"train.micro_batch_tokens={micro_batch_tokens}"
    monkeypatch.setattr(plan_module, "free_memory", lambda device: 0.5 * cost(config()).state_bytes)
    plan = plan_training(config(), lengths(), None)
    assert plan.seconds is None and len(measured) == 2 and keys(plan) == ["model.d_model"]


def test_machines_have_names():
    assert cluster_named("8xH100") == cluster_named("8xh100") and cluster_named("8xH100").count == 8
    assert cluster_named("l4").count == 1 and cluster_named("64xA100").bandwidth == 200e9
    for name in ("8xH1000", "x8", "0xL4", "", "H100x8"):
        with pytest.raises(InputError, match=f"the machine must be NUMBERxDEVICE.*, but is {name}$"):
            cluster_named(name)


def test_the_documented_devices_are_those_that_are_computed_with():
    page = (ROOT / "docs/explanation/scaling.md").read_text(encoding="utf-8")
    for each in DEVICES:
        values = (each.memory_gb, each.tflops, each.link_gb, each.network_gb)
        assert f"| {each.name} | {' | '.join(f'{value:g}' for value in values)} |" in page


@pytest.mark.parametrize(
    "train, count, message",
    [
        (
            {"precision": "fp32"},
            1,
            "train.precision must be auto, bf16 or fp16 to plan for a described machine",
        ),
        ({"parallel": "fsdp"}, 1, "train.parallel must be ddp on one device, but is fsdp"),
        ({"parallel": "fsdp", "batch_tokens": "auto"}, 2, "train.batch_tokens must be a number"),
    ],
)
def test_what_cannot_be_planned_is_refused(train, count, message):
    with pytest.raises(InputError, match=message):
        plan_training(config(**train), lengths(), Cluster(count, device()))


def test_a_recurrent_network_is_refused():
    recurrent = config({"kind": "recurrent"})
    with pytest.raises(
        InputError, match="model.kind must be transformer to plan a training, but is recurrent"
    ):
        plan_training(recurrent, lengths(), None)


def test_the_arithmetic_of_fused_attention_is_counted_for_a_gpu():
    """Of long sentences it is much: in each of three attentions two products forward and five backward."""

    def on_gpu(length):
        sides = np.full(1, length)
        batch = longest_batch(sides, sides, 4096)
        return update_cost(config(), VOCABULARY, batch, torch.bfloat16, on_gpu=True).flops

    of_a_key = 3 * (2 + 5) * 2 * 4096 * 64
    assert on_gpu(512) - on_gpu(16) == pytest.approx(of_a_key * (512 - 16), rel=0.01)


def test_the_optimizer_starts_its_operations_once_in_an_update_of_several_passes():
    by_adamw, by_muon = cost(config()), cost(config(optimizer="muon"))
    assert by_adamw.pass_operations == by_muon.pass_operations > 0
    assert by_muon.step_operations > by_adamw.step_operations > 0
    whole, four = (
        plan_training(config(accumulate=n, optimizer="muon"), lengths(), Cluster(1, device(tflops=1e9)))
        for n in (1, 4)
    )
    assert four.seconds - whole.seconds == pytest.approx(3e-5 * whole.cost.pass_operations, rel=0.05)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_every_advice_of_a_plan_is_a_valid_config(accumulate):
    chosen = config(accumulate=accumulate, batch_tokens=512)
    changes = plan_training(chosen, lengths(), Cluster(8, device(network_gb=0.01, link_gb=0.01))).changes
    assert any("train.update_tokens" in change.keys for change in changes)
    for change in changes:
        values = chosen.model_dump()
        for words in change.keys.split():
            key, value = words.removeprefix("train.").split("=")
            values["train"][key] = yaml.safe_load(value)
        Config.model_validate(values)


def test_a_measured_peak_above_the_memory_is_never_answered_by_larger_passes(monkeypatch):
    from transformer_mt.training.planning import plan as plan_module

    computed = cost(config()).peak_bytes
    monkeypatch.setattr(plan_module, "free_memory", lambda device: 1.3 * computed)
    monkeypatch.setattr(plan_module, "peak_memory", lambda device: 1.4 * computed)
    monkeypatch.setattr(plan_module, "seconds_per_update", lambda *args, **keys: 1.0)
    (advice,) = [each for each in keys(plan_training(config(), lengths(), None)) if "micro_batch" in each]
    assert int(advice.partition("=")[2]) < 4096


def test_updates_of_epochs_are_not_rounded_up_for_nothing():
    assert updates_of_epochs(7, 29 / 7) == 29 and updates_of_epochs(1.1, 100) == 110
    assert updates_of_epochs(1.0, 10.2) == 11


def test_frozen_weights_are_not_sent():
    """Frozen weights are on each device; only gradients of what is trained are summed."""
    values = config(optimizer="muon").model_dump()
    values["train"]["freeze"] = ["encoder", "decoder"]
    frozen = Config.model_validate({**values, "init_from": "runs/x"})
    assert muon_work(frozen, VOCABULARY) == (0, 0.0)
    assert cost(frozen).trained_parameters == VOCABULARY * 64 < cost(frozen).parameters
