"""Loss, schedule, optimizer and one update."""

import math

import numpy as np
import pytest
import torch

from transformer_mt.config import ModelConfig, TrainConfig
from transformer_mt.data.batching import make_batch
from transformer_mt.data.tokenizer import PAD
from transformer_mt.model.build import build_model
from transformer_mt.training.loss import cross_entropy, plain_cross_entropy
from transformer_mt.training.optimizer import build_optimizer, load_optimizer_tensors, optimizer_tensors
from transformer_mt.training.progress import Progress
from transformer_mt.training.schedule import learning_rate
from transformer_mt.training.step import Updater

CPU = torch.device("cpu")


def tiny_model(**changes):
    torch.manual_seed(0)
    config = {
        "d_model": 16,
        "d_ff": 32,
        "num_heads": 2,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "dropout": 0.0,
    }
    return build_model(ModelConfig(**{**config, **changes}), 40, 40, True, 30)


def pairs(count, seed=0):
    rng = np.random.default_rng(seed)
    return [tuple(rng.integers(4, 40, rng.integers(1, 12)) for _ in range(2)) for _ in range(count)]


def batch_of(rows):
    return make_batch([src for src, _ in rows], [tgt for _, tgt in rows])


def updater(model, dtype=torch.float32, max_grad_norm=1.0, **config):
    optimizer = build_optimizer(model, TrainConfig(**config))
    return Updater(model, model, optimizer, CPU, dtype, label_smoothing=0.1, max_grad_norm=max_grad_norm)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loss_equals_torchs_in_value_and_gradient(smoothing, dtype):
    torch.manual_seed(0)
    logits = (torch.randn(3, 5, 11) * 3).to(dtype)
    targets = torch.randint(0, 11, (3, 5))
    targets[1, 3:] = PAD
    mine, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss, nll = cross_entropy(mine, targets, smoothing, PAD)
    expected_loss, expected_nll = plain_cross_entropy(theirs, targets, smoothing, PAD)
    assert loss.item() == pytest.approx(expected_loss.item(), rel=1e-5)
    assert nll.item() == pytest.approx(expected_nll.item(), rel=1e-5)
    (loss / 7).backward()
    (expected_loss / 7).backward()
    torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-6 if dtype == torch.float32 else 1e-2, rtol=1e-5)
    assert (mine.grad[1, 3:] == 0).all()


def test_loss_gradient_is_that_of_the_function():
    logits = torch.randn(2, 3, 7, dtype=torch.float64)
    targets = torch.randint(1, 7, (2, 3))

    def numeric(i, h=1e-3):
        step = torch.zeros_like(logits).view(-1)
        step[i] = h
        up, down = (cross_entropy((logits + s * step.view_as(logits)), targets, 0.1, PAD)[0].item() for s in (1, -1))
        return (up - down) / (2 * h)

    at = logits.clone().requires_grad_()
    cross_entropy(at, targets, 0.1, PAD)[0].backward()
    for i in (0, 5, 20, 41):
        assert at.grad.view(-1)[i].item() == pytest.approx(numeric(i), abs=2e-3)


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


def test_update_equals_one_large_batch():
    """The same sentences as one batch, or as four unequal micro-batches with their own padding."""
    rows = pairs(23)
    parts = [rows[:2], rows[2:11], rows[11:12], rows[12:]]
    models = [tiny_model(), tiny_model()]
    # A large epsilon: else Adam makes whole steps of gradients that are zero but for rounding (a key's bias).
    one = updater(models[0], eps=1e-3).update([batch_of(rows)], 0.01)
    four = updater(models[1], eps=1e-3).update([batch_of(part) for part in parts], 0.01)
    assert one.num_tokens == four.num_tokens
    assert one.loss == pytest.approx(four.loss, rel=1e-5)
    assert one.grad_norm == pytest.approx(four.grad_norm, rel=1e-4)
    optimizer_state = [dict(model.named_parameters()) for model in models]
    for name, weight in optimizer_state[0].items():
        torch.testing.assert_close(weight, optimizer_state[1][name], atol=1e-5, rtol=1e-4)


def test_gradient_is_of_the_mean_over_target_tokens():
    rows, model = pairs(5), tiny_model()
    batch = batch_of(rows)
    loss, _ = plain_cross_entropy(model(batch.src, batch.src_mask, batch.tgt_in), batch.tgt_out, 0.1, PAD)
    (loss / batch.num_tokens).backward()
    expected = torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()
    result = updater(tiny_model(), max_grad_norm=0.0).update([batch], 0.0)
    assert result.grad_norm == pytest.approx(expected, rel=1e-4)
    assert result.loss == pytest.approx(loss.item(), rel=1e-5)
    assert result.num_tokens == sum(len(tgt) + 1 for _, tgt in rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_clip_sees_unscaled_gradients(dtype):
    """With Adam's moments at beta 0 the step only shows directions; the length is looked at before it."""
    model = tiny_model()
    seen = []
    run = updater(model, dtype, max_grad_norm=0.01)
    step = run._optimizer.step
    run._optimizer.step = lambda *a, **k: (
        seen.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()),
        step(*a, **k),
    )
    result = run.update([batch_of(pairs(8))], 0.001)
    assert result.grad_norm > 0.1
    assert seen == pytest.approx([0.01], rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_precision_learns(dtype):
    model, batch = tiny_model(), batch_of(pairs(8))
    run = updater(model, dtype)
    losses = [run.update([batch], 0.01).loss for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_non_finite_update_is_skipped_and_changes_nothing(poison):
    model, batch = tiny_model(), batch_of(pairs(8))
    run = updater(model)
    run.update([batch], 0.01)
    bias = model.encoder.layers[0].feed_forward.outer.bias
    kept = bias.data[0].clone()
    bias.data[0] = poison
    before = [parameter.clone() for parameter in model.parameters()]
    assert run.update([batch], 0.01).skipped
    for old, parameter in zip(before, model.parameters()):
        torch.testing.assert_close(old, parameter.data, equal_nan=True, rtol=0, atol=0)
    bias.data[0] = kept
    assert not run.update([batch], 0.01).skipped


def test_only_matrices_are_decayed():
    model = tiny_model()
    groups = build_optimizer(model, TrainConfig(weight_decay=0.3)).param_groups
    assert {p.dim() > 1: group["weight_decay"] for group in groups for p in group["params"]} == {True: 0.3, False: 0.0}


def test_optimizer_takes_its_settings():
    adamw, adam = (
        build_optimizer(tiny_model(), TrainConfig(optimizer=kind, betas=[0.8, 0.9], eps=1e-6))
        for kind in ("adamw", "adam")
    )
    assert isinstance(adamw, torch.optim.AdamW) and not isinstance(adam, torch.optim.AdamW)
    assert adam.param_groups[0]["betas"] == (0.8, 0.9) and adam.param_groups[0]["eps"] == 1e-6


def test_optimizer_state_comes_back():
    batches = [batch_of(pairs(6, seed)) for seed in range(4)]
    straight, stopped, resumed = tiny_model(), tiny_model(), tiny_model()
    run = updater(straight)
    for batch in batches:
        run.update([batch], 0.01)
    run = updater(stopped)
    for batch in batches[:2]:
        run.update([batch], 0.01)
    tensors = {name: value.clone() for name, value in optimizer_tensors(run._optimizer, stopped).items()}
    resumed.load_state_dict(stopped.state_dict())
    run = updater(resumed)
    load_optimizer_tensors(run._optimizer, resumed, tensors)
    for batch in batches[2:]:
        run.update([batch], 0.01)
    for left, right in zip(straight.parameters(), resumed.parameters()):
        assert torch.equal(left, right)


def test_progress_remembers_the_best_and_counts_the_stale():
    progress = Progress()
    for step, (score, is_best) in enumerate([(1.0, True), (3.0, True), (2.0, False), (3.0, False)], start=1):
        progress.step = step
        assert progress.validated(score) is is_best
    assert (progress.best_step, progress.best_score, progress.stale) == (2, 3.0, 2)
    copy = Progress()
    copy.load_state_dict(progress.state_dict())
    assert copy == progress
