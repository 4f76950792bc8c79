"""Which parameters which optimizer moves, its settings and its state."""

import pytest
import torch

from tests.helpers.updates import batch_of, pairs, tiny_model, updater
from transformer_mt.config import TrainConfig
from transformer_mt.config.model_section import AttentionConfig
from transformer_mt.update.optimizer import build_optimizer, load_optimizer_tensors, optimizer_tensors


def test_only_matrices_are_decayed():
    model = tiny_model()
    groups = build_optimizer(model, TrainConfig(weight_decay=0.3)).param_groups
    assert {p.dim() > 1: group["weight_decay"] for group in groups for p in group["params"]} == {
        True: 0.3,
        False: 0.0,
    }


def test_optimizer_takes_its_settings():
    adamw, adam = (
        build_optimizer(tiny_model(), TrainConfig(optimizer=kind, betas=[0.8, 0.9], eps=1e-6))
        for kind in ("adamw", "adam")
    )
    assert isinstance(adamw, torch.optim.AdamW) and not isinstance(adam, torch.optim.AdamW)
    assert adam.param_groups[0]["betas"] == (0.8, 0.9) and adam.param_groups[0]["eps"] == 1e-6


def test_muon_moves_the_layers_matrices_and_adamw_the_rest():
    models = {kind: tiny_model() for kind in ("muon", "adamw")}
    batch = batch_of(pairs(8))
    for kind, model in models.items():
        updater(model, optimizer=kind, weight_decay=0.1).update([batch], 0.01)
    before = dict(tiny_model().named_parameters())
    for name, old in before.items():
        muon, adamw = (dict(model.named_parameters())[name] for model in models.values())
        by_muon = old.dim() == 2 and name.startswith(("encoder.", "decoder."))
        assert torch.equal(muon, adamw) is not by_muon, name
    # Muon's step is nearly orthogonal: its singular values are alike, those of AdamW's signs are not.
    name = "encoder.layers.0.self_attention.query.weight"
    spread = {}
    for kind, model in models.items():
        step = dict(model.named_parameters())[name] - before[name] * (1 - 0.01 * 0.1)
        singular = torch.linalg.svdvals(step)
        spread[kind] = (singular.max() / singular.median()).item()
    assert spread["muon"] < 2 < spread["adamw"]


@pytest.mark.parametrize(
    "changes",
    [
        {"attention": AttentionConfig(score="general")},
        {"attention": AttentionConfig(score="additive")},
        {"position": "relative"},
        {"kind": "recurrent", "attention": AttentionConfig(score="location")},
    ],
)
def test_muon_leaves_what_is_no_matrix_of_a_layer_to_adamw(changes):
    """Parameters for each head, vectors for each distance, the gates of a cell."""
    models = {}
    for kind in ("muon", "adamw"):
        models[kind] = tiny_model(**changes)
        updater(models[kind], optimizer=kind).update([batch_of(pairs(8))], 0.01)
    muon, adamw = (dict(model.named_parameters()) for model in models.values())
    linear = {
        f"{name}.weight"
        for name, module in models["muon"].named_modules()
        if isinstance(module, torch.nn.Linear) and name.startswith(("encoder.", "decoder."))
    }
    for name in muon:
        assert torch.equal(muon[name], adamw[name]) is (name not in linear), name


def test_one_learning_rate_serves_muon_and_adamw():
    run = updater(tiny_model(), optimizer="muon")
    run.update([batch_of(pairs(8))], 0.003)
    assert {group["lr"] for group in run.optimizer.param_groups} == {0.003}
    assert {group["lr"] for part in run.optimizer._parts for group in part.param_groups} == {0.003}


@pytest.mark.parametrize("kind", ["adamw", "adam", "muon"])
def test_optimizer_state_comes_back(kind):
    batches = [batch_of(pairs(6, seed)) for seed in range(4)]
    straight, stopped, resumed = tiny_model(), tiny_model(), tiny_model()
    run = updater(straight, optimizer=kind)
    for batch in batches:
        run.update([batch], 0.01)
    run = updater(stopped, optimizer=kind)
    for batch in batches[:2]:
        run.update([batch], 0.01)
    tensors = {name: value.clone() for name, value in optimizer_tensors(run.optimizer, stopped).items()}
    resumed.load_state_dict(stopped.state_dict())
    run = updater(resumed, optimizer=kind)
    load_optimizer_tensors(run.optimizer, resumed, tensors)
    for batch in batches[2:]:
        run.update([batch], 0.01)
    for left, right in zip(straight.parameters(), resumed.parameters()):
        assert torch.equal(left, right)
