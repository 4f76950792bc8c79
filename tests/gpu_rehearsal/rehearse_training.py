"""Updates on a GPU: none waits for the device, none mixes devices, none needs more kernels than it did."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.gpu_rehearsal.fake_gpu import GPU, on_gpu, rehearsal
from tests.helpers.updates import ListedRows, packed_batch_of
from transformer_mt.config import TrainConfig
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.data.batches.batch import make_batch
from transformer_mt.device import choose_device, choose_precision
from transformer_mt.model.build_model import build_model
from transformer_mt.ranks import Ranks
from transformer_mt.run.validation import validation_loss
from transformer_mt.update.acceleration import checkpoint_activations
from transformer_mt.update.loss import CrossEntropy
from transformer_mt.update.optimizer import build_optimizer, load_optimizer_tensors, optimizer_tensors
from transformer_mt.update.step import Objective, Updater

SMALL = {"d_model": 64, "d_ff": 128, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2}
RNG = np.random.default_rng(0)


def rows(count, shortest=5, longest=30):
    return [RNG.integers(4, 1000, RNG.integers(shortest, longest)) for _ in range(count)]


def update(batches=1, precision="bf16", checkpointed=False, micro_batch_tokens=0, shape=None, **changes):
    """What the second of two updates asks of the device."""
    train = TrainConfig(**{key: changes.pop(key) for key in ("optimizer",) if key in changes})
    with rehearsal() as watch:
        model = on_gpu(build_model(ModelConfig(**{**SMALL, **changes}), 1000, 1000, True, 64)).train()
        objective = Objective(model, CrossEntropy(0.1), copies_weights=not checkpointed)
        if checkpointed:
            checkpoint_activations(model.blocks)
        optimizer = build_optimizer(model, train)
        updater = Updater(
            objective, optimizer, GPU, choose_precision(precision, GPU), 1.0, Ranks(), micro_batch_tokens
        )
        sides = [[np.full(n - 1, 5)] * shape[0] for n in shape[1:]] if shape else [rows(16), rows(16)]
        made = [make_batch(*sides).pinned() for _ in range(batches)]
        updater.update(made, 1e-3)
        watch.clear()
        updater.update(made, 1e-3)
        assert not watch.waits
        assert all(p.dtype == torch.float32 and p.is_cuda for p in model.parameters())
        return watch.num_kernels, dict(watch.attention), watch.kernels


class Recorded(TorchDispatchMode):
    """The operations of a part that is captured as a CUDA graph, with the sizes of what they make."""

    def __init__(self):
        super().__init__()
        self.operations, self.on_host, self.generators = [], [], []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        made = [part for part in tree_leaves(result) if isinstance(part, torch.Tensor)]
        self.operations.append((str(operation), [tuple(part.shape) for part in made]))
        self.on_host += [str(operation) for part in made if part.device.type == "cpu"]
        if (kwargs or {}).get("generator") is not None:
            self.generators.append(str(operation))
        return result


PACKED = {
    "adamw": {"optimizer": "adamw"},
    "muon": {"optimizer": "muon"},
    "rotary, post-norm, eos": {"position": "rotary", "norm": "post", "decoder_start": "eos"},
    "relative": {"position": "relative"},
    "alibi, window": {"position": "alibi", "attention": {"window": 3}},
    "additive, learned": {"position": "learned", "attention": {"score": "additive"}},
    "bias, dropouts": {"output_bias": True, "attention_dropout": 0.1, "ffn_dropout": 0.1},
    "decoder": {"kind": "decoder"},
}


def packed_updates(settings):
    """The operations of packed updates of two different batches, and the kernels of the second."""
    settings = dict(settings)
    train = TrainConfig(optimizer=settings.pop("optimizer", "adamw"))
    with rehearsal() as watch:
        model = on_gpu(build_model(ModelConfig(**{**SMALL, **settings}), 1000, 1000, True, 64)).train()
        optimizer = build_optimizer(model, train)
        objective = Objective(model, CrossEntropy(0.1), copies_weights=True)
        run = Updater(objective, optimizer, GPU, torch.bfloat16, 1.0, Ranks())
        scale = torch.ones((), device=GPU)
        for group in optimizer.param_groups:
            group["lr"], group["capturable"] = scale, True
        recorded = []
        for count in (14, 14, 11):  # the first makes the optimizer's state
            pairs = list(zip(rows(count), rows(count)))
            batch = packed_batch_of(pairs, 64, num_rows=16).pinned().to(GPU)
            watch.clear()
            with Recorded() as found, torch.autocast("cuda", torch.bfloat16):
                loss, nll = objective(batch)
            with found:
                (loss * scale).backward()
                run._finish(loss.detach(), nll)
            assert not watch.waits
            assert not found.on_host
            assert not found.generators
            recorded.append(found.operations)
    return recorded[1:], watch.num_kernels


@pytest.mark.parametrize("settings", PACKED.values(), ids=PACKED)
def test_a_packed_update_can_be_captured(settings):
    """Two batches of different sentences ask for the same operations of the same sizes; no operation reads a
    value, makes something on the host, or uses a generator of its own.
    """
    (first, second), _ = packed_updates(settings)
    assert first == second


def test_the_device_is_found():
    assert choose_device("auto") == GPU
    assert choose_precision("auto", GPU) == torch.bfloat16


def test_a_wait_is_noticed():
    with rehearsal() as watch:
        numbers = torch.ones(3, device=GPU)
        numbers.sum().item()
        numbers[numbers > 0]
        numbers[torch.tensor([1])]
        numbers.cpu()
        torch.ones(3).to(GPU)
    assert sum(watch.waits.values()) == 5, watch.waits


def test_mixed_devices_are_noticed():
    with rehearsal(), pytest.raises(RuntimeError, match="device"):
        torch.ones(3, device=GPU) + torch.ones(3)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_an_update_does_not_wait(optimizer, precision):
    update(optimizer=optimizer, precision=precision)


@pytest.mark.parametrize(
    "settings",
    [
        {"batches": 3},
        {"checkpointed": True},
        {"micro_batch_tokens": 100},
        {"attention_dropout": 0.1, "ffn_dropout": 0.1},
    ],
    ids=str,
)
def test_other_updates_do_not_wait(settings):
    update(**settings)


def test_the_optimizers_state_is_saved_and_loaded():
    for kind in ("adamw", "muon"):
        with rehearsal():
            model = on_gpu(build_model(ModelConfig(**SMALL), 1000, 1000, True, 64)).train()
            optimizer = build_optimizer(model, TrainConfig(optimizer=kind))
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
            saved = optimizer_tensors(optimizer, model)
            assert {tensor.device.type for tensor in saved.values()} == {"cpu"}
            load_optimizer_tensors(optimizer, model, saved)
            optimizer.step()


def test_decoder_self_attention_is_flash_attention():
    assert update()[1] == {"flash": 2, "efficient": 4}


# Kernels of an update of one batch, not compiled. Lower a number when the code needs fewer.
KERNELS = {
    ("small", "adam"): 674,
    ("small", "muon"): 788,
    ("base", "adam"): 964,
    ("base", "muon"): 1116,
    ("big", "adam"): 964,
    ("big", "muon"): 1382,
}
# The same of packed batches.
PACKED_KERNELS = {
    ("small", "adamw"): 695,
    ("small", "muon"): 815,
    ("base", "adamw"): 993,
    ("base", "muon"): 1153,
}
SHAPES = {
    "small": {"d_model": 256, "d_ff": 1024, "num_heads": 4, "num_encoder_layers": 4, "num_decoder_layers": 4},
    "base": {"num_encoder_layers": 6, "num_decoder_layers": 6, "d_model": 512, "d_ff": 2048, "num_heads": 8},
    "big": {"num_encoder_layers": 6, "num_decoder_layers": 6, "d_model": 1024, "d_ff": 4096, "num_heads": 16},
}


@pytest.mark.parametrize("name, optimizer", KERNELS)
def test_an_update_starts_no_more_kernels_than_recorded(name, optimizer):
    found = update(optimizer=optimizer, shape=(64, 32, 32), **SHAPES[name])
    assert found[0] <= KERNELS[name, optimizer], found[2].most_common()


@pytest.mark.parametrize("name, optimizer", PACKED_KERNELS)
def test_a_packed_update_starts_no_more_kernels_than_recorded(name, optimizer):
    _, kernels = packed_updates({"optimizer": optimizer, **SHAPES[name]})
    assert kernels <= PACKED_KERNELS[name, optimizer]


def test_the_validation_loss_is_read_once():
    listed = ListedRows(rows(40), rows(40))
    with rehearsal() as watch:
        model = on_gpu(build_model(ModelConfig(**SMALL), 1000, 1000, True, 64)).eval()
        watch.clear()
        validation_loss(model, listed, 200, GPU, Ranks())
        assert watch.num_waits == 1, watch.waits
        validation_loss(model, listed, 200, GPU, Ranks(), micro_batch_tokens=60)
    assert watch.num_waits == 2, watch.waits
