"""Which parameters which optimizer moves, its settings and its state."""

import math

import pytest
import torch

from tests.helpers.updates import batch_of, pairs, tiny_model, updater
from transformer_mt.config import TrainConfig
from transformer_mt.config.model_section import AttentionConfig
from transformer_mt.update import optimizer as optimizer_module
from transformer_mt.update.optimizer import (
    POLYNOMIALS,
    Muon,
    build_optimizer,
    load_optimizer_tensors,
    optimizer_tensors,
    orthogonal,
)
from transformer_mt.update.schedule import learning_rate


def test_only_matrices_are_decayed():
    groups = build_optimizer(tiny_model(), TrainConfig(weight_decay=0.3)).param_groups
    decays = {(p.dim() > 1, group["weight_decay"]) for group in groups for p in group["params"]}
    assert decays == {(True, 0.3), (False, 0.0)}


def test_optimizer_takes_its_settings():
    adamw, adam = (
        build_optimizer(tiny_model(), TrainConfig(optimizer=kind, betas=[0.8, 0.9], eps=1e-6))
        for kind in ("adamw", "adam")
    )
    assert isinstance(adamw, torch.optim.AdamW) and not isinstance(adam, torch.optim.AdamW)
    assert adam.param_groups[0]["betas"] == (0.8, 0.9) and adam.param_groups[0]["eps"] == 1e-6


def test_muons_step_is_nearly_orthogonal():
    """Its singular values are alike, those of AdamW's signs are not."""
    before = tiny_model().encoder.layers[0].self_attention.query.weight
    spread = {}
    for kind in ("muon", "adamw"):
        model = tiny_model()
        updater(model, optimizer=kind, weight_decay=0.1).update([batch_of(pairs(8))], 0.01)
        step = model.encoder.layers[0].self_attention.query.weight - before * (1 - 0.01 * 0.1)
        singular = torch.linalg.svdvals(step)
        spread[kind] = (singular.max() / singular.median()).item()
    assert spread["muon"] < 2 < spread["adamw"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention": AttentionConfig(score="additive")},
        {"position": "relative"},
        {"kind": "recurrent", "attention": AttentionConfig(score="location")},
    ],
)
def test_muon_moves_the_layers_matrices_and_adamw_the_rest(changes):
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


@pytest.mark.parametrize("kind", ["adamw", "muon"])
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


# Muon's steps.


def jordans_iteration(matrices):
    """That of torch's Muon (Jordan et al. 2024)."""
    x = matrices if matrices.size(1) <= matrices.size(2) else matrices.mT
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x if matrices.size(1) <= matrices.size(2) else x.mT


@pytest.mark.parametrize("weight_decay, together", [(0.1, 2**24), (0.0, 600), (0.1, 1)])
def test_muon_steps_as_torchs_does_matrix_by_matrix(weight_decay, together):
    shapes = [(16, 16), (32, 16), (16, 32), (16, 16), (1, 16), (16, 16)]
    ours, torchs = ([torch.nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2))
    optimizer = Muon(ours, lr=0.01, weight_decay=weight_decay, dtype=torch.bfloat16)
    optimizer.most_elements, optimizer.iteration = together, jordans_iteration
    oracle = torch.optim.Muon(torchs, lr=0.01, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
    torch.manual_seed(0)
    for _ in range(4):
        for left, right in zip(ours[:-1], torchs):  # the last has no gradient
            left.grad = right.grad = torch.randn(left.shape)
        optimizer.step()
        oracle.step()
        for left, right in zip(ours, torchs):
            torch.testing.assert_close(left, right, rtol=0, atol=1e-6)


def test_muon_multiplies_in_bfloat16_only_where_that_is_fast(monkeypatch):
    steps = {}
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        monkeypatch.setattr(optimizer_module, "choose_precision", lambda *_, found=dtype: found)
        model = tiny_model()
        updater(model, optimizer="muon").update([batch_of(pairs(8))], 0.01)
        steps[dtype] = model.encoder.layers[0].feed_forward.inner.weight
    assert torch.equal(steps[torch.float16], steps[torch.float32])
    assert not torch.equal(steps[torch.bfloat16], steps[torch.float32])
    # Of steps of 0.01
    torch.testing.assert_close(steps[torch.bfloat16], steps[torch.float32], rtol=0, atol=2e-3)


# Muon's steps: nearly orthogonal matrices, in either precision.


SHAPES = [(24, 24), (24, 30), (96, 24)]


def matrix_with(singular, shape, seed=0):
    torch.manual_seed(seed)
    left, right = (torch.linalg.qr(torch.randn(size, len(singular))).Q for size in shape)
    return left @ torch.diag(torch.tensor(singular)) @ right.T


def test_the_polynomials_bring_all_from_1_percent_on_near_1():
    x = torch.linspace(0.01, 1, 100_000, dtype=torch.float64)
    for a, b, c in POLYNOMIALS:
        x = a * x + b * x**3 + c * x**5
    assert x.min() > 0.987 and x.max() < 1.013


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_singular_vectors_are_kept_and_values_brought_near_1(shape, dtype):
    given = matrix_with([1.0, 0.9, 0.5, 0.3, 0.1, 0.05], shape) * 1e-4
    found = orthogonal(given[None].to(dtype))[0].float()
    u, s, v = torch.linalg.svd(given, full_matrices=False)
    values = torch.einsum("ai,ab,ib->i", u, found, v)[:6]
    slack, likeness = (0.05, 0.95) if dtype == torch.bfloat16 else (0.013, 0.999)
    assert (values > 1 - slack).all() and (values < 1 + slack).all()
    exact = u[:, :6] @ v[:6]
    assert torch.cosine_similarity(found.flatten(), exact.flatten(), dim=0) > likeness


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_a_matrix_of_rank_one_does_not_grow(shape, dtype, size):
    """Its norm is its only value; beyond 1 the first polynomial is steep."""
    each = torch.stack([matrix_with([size], shape, seed) for seed in range(50)]).to(dtype)
    largest = torch.linalg.matrix_norm(orthogonal(each).float(), 2)
    assert largest.min() > 0.8 and largest.max() < 1.2


def test_zeros_stay_zeros():
    assert torch.equal(orthogonal(torch.zeros(2, 3, 5)), torch.zeros(2, 3, 5))


def test_each_matrix_of_a_stack_is_itself():
    stack = torch.stack([matrix_with([1.0, 0.2, 0.1], (8, 20), seed) for seed in range(3)])
    together = orthogonal(stack * torch.tensor([1.0, 1e3, 1e-3])[:, None, None])
    for one, alone in zip(together, stack):
        torch.testing.assert_close(one, orthogonal(alone[None])[0], atol=1e-5, rtol=1e-4)


# Learning rates as functions of the step.


def rates(**config):
    train = TrainConfig(learning_rate=0.5, warmup=10, max_updates=100, **config)
    return [learning_rate(step, train) for step in range(1, 101)]


def test_inverse_sqrt_is_the_papers_scaled_to_its_peak():
    """Equation 3: d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)."""
    paper = [min(step**-0.5, step * 10**-1.5) for step in range(1, 101)]
    peak = max(paper)
    assert rates(schedule="inverse_sqrt") == pytest.approx([0.5 * rate / peak for rate in paper])


@pytest.mark.parametrize(
    "schedule, middle", [("linear", 0.5 * 46 / 91), ("cosine", 0.25 * (1 + math.cos(math.pi * 45 / 91)))]
)
def test_linear_and_cosine_rise_fall_and_end_just_above_zero(schedule, middle):
    values = rates(schedule=schedule)
    assert values[:10] == pytest.approx([0.05 * step for step in range(1, 11)])
    assert values[54] == pytest.approx(middle)
    assert 0 < values[-1] < 0.01
    assert values[9:] == sorted(values[9:], reverse=True)


def test_constant_stays():
    assert rates(schedule="constant") == pytest.approx([0.05 * min(step, 10) for step in range(1, 101)])


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "linear", "cosine", "constant"])
def test_no_warmup_starts_at_the_peak(schedule):
    train = TrainConfig(learning_rate=0.5, warmup=0, max_updates=100, schedule=schedule)
    assert learning_rate(1, train) == pytest.approx(0.5, rel=0.02)
