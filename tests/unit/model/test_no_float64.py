"""Nothing that runs on the device of a model computes in float64: Apple's GPUs (MPS) have none."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from tests.helpers.updates import batch_of, pairs, tiny_model, updater
from tests.unit.translation.test_translator import SEARCHES
from transformer_mt import Translator
from transformer_mt.model.variants.position_bias import Rotary


class NoFloat64(TorchDispatchMode):
    """Raises when an operation gives a tensor of float64."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for each in tree_flatten(result)[0]:
            if isinstance(each, torch.Tensor) and each.dtype == torch.float64:
                raise AssertionError(f"{function} gives float64")
        return result


def test_the_mode_sees_float64():
    with NoFloat64(), pytest.raises(AssertionError, match="gives float64"):
        torch.ones(2).double()


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_searches_do_not(tiny_run, search):
    translator = Translator.load(tiny_run, device="cpu", decode=search)
    with NoFloat64():
        translator.translate(["The dog sleeps.", "The old teacher sees a small bird."], align=True)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "relative", "alibi"])
def test_updates_do_not(optimizer, position, monkeypatch):
    monkeypatch.setattr(Rotary, "rotate", Rotary.rotate_by_formula)  # as on every device but the CPU
    run = updater(tiny_model(position=position), optimizer=optimizer)
    with NoFloat64():
        run.update([batch_of(pairs(5))], 0.01)
