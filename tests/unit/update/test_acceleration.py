"""What makes updates faster or smaller: compiled layers and activation checkpointing."""

import os
from functools import partial
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from tests.helpers.updates import batch_of, packed_batch_of, pairs, tiny_model, updater
from transformer_mt.config import Config
from transformer_mt.update.acceleration import checkpoint_activations, is_compiled, use_compiler_cache
from transformer_mt.update.loss import CrossEntropy
from transformer_mt.update.step import Objective

TOY = {"source_lang": "en", "target_lang": "de", "train": {"toy": "train"}, "valid": {"toy": "valid"}}


def config_of(train):
    return Config.model_validate({"name": "compiled", "data": TOY, "train": train})


@pytest.mark.parametrize(
    ("settings", "device", "updates", "expected"),
    [
        ({}, "cuda", 100_000, False),
        ({"packed": True}, "cpu", 100_000, False),
        ({"packed": True, "compile": True}, "cpu", 10, True),
        ({"packed": True, "compile": True, "activation_checkpointing": True}, "cuda", 100_000, False),
        ({"packed": True}, "cuda", 10_000, True),
        ({"packed": True}, "cuda", 3_000, False),
        ({"packed": True, "batch_tokens": 25_000}, "cuda", 3_000, True),
        ({"packed": True, "compile": False}, "cuda", 100_000, False),
    ],
)
def test_by_default_trainings_on_a_gpu_are_compiled_where_it_saves_time(
    settings, device, updates, expected, monkeypatch, tmp_path
):
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path))
    config = config_of(settings)
    assert is_compiled(config, torch.device(device), updates) == expected


def test_code_in_the_compilers_cache_pays_sooner(monkeypatch, tmp_path):
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    config = config_of({"packed": True})
    assert not is_compiled(config, torch.device("cuda"), 3_000)
    use_compiler_cache(config)
    assert is_compiled(config, torch.device("cuda"), 3_000)
    assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).is_relative_to(tmp_path)


def test_one_compilation_serves_all_layers_of_a_kind(monkeypatch):
    """One graph for the encoder's layers, one for the decoder's, one for the loss, which agree with plain
    code; validations use none of them. The graphs are run as they are: a C++ compiler takes a minute.
    """
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch._dynamo.reset()
    counters.clear()
    network, batch = (
        tiny_model(num_encoder_layers=3, num_decoder_layers=2, position="rotary", norm="post"),
        packed_batch_of(pairs(13)),
    )
    losses_and_gradients = []
    for compiled in (False, True):
        objective = Objective(network, CrossEntropy(0.1), compiled)
        for _ in range(2):
            network.zero_grad()
            loss, nll = objective(batch)
            loss.backward()
        losses_and_gradients.append(
            [loss, nll, *(parameter.grad.clone() for parameter in network.parameters())]
        )
    assert counters["stats"]["unique_graphs"] == 3
    assert all("forward" not in vars(layer) for layer in network.blocks)
    for plain, fused in zip(*losses_and_gradients):
        torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-4)
    torch._dynamo.reset()


# Activations that are computed twice instead of kept.


@pytest.mark.parametrize("changes", [{}, {"kind": "recurrent"}], ids=["transformer", "recurrent"])
def test_checkpointed_activations_take_less_memory_and_train_the_same(changes):
    trained, kept = {}, {}
    for way in ("kept", "computed again"):
        model = tiny_model(dropout=0.2, **changes)
        if way == "computed again":
            checkpoint_activations(model.blocks)
        run, sizes = updater(model), []

        def count(tensor, sizes=sizes):
            sizes.append(tensor.nbytes)
            return tensor

        torch.manual_seed(1)
        for seed in range(3):
            with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
                run.update([batch_of(pairs(8, seed))], 0.01)
        trained[way], kept[way] = list(model.named_parameters()), sum(sizes)
    for (name, weight), (same_name, again) in zip(*trained.values(), strict=True):
        assert name == same_name and torch.equal(weight, again), name
    if not changes:
        assert kept["computed again"] < 0.6 * kept["kept"]
