"""Loss, schedule, optimizer and one update."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from transformer_mt.config import TrainConfig
from transformer_mt.config.model import AttentionConfig, ModelConfig
from transformer_mt.data.batches.batching import make_batch
from transformer_mt.data.vocabulary.tokenizer import PAD
from transformer_mt.device import autocast
from transformer_mt.errors import WorkError
from transformer_mt.model.build import build_model
from transformer_mt.training.parallel.distributed import Ranks
from transformer_mt.training.state.progress import Progress
from transformer_mt.training.update import loss as loss_module
from transformer_mt.training.update import muon as muon_module
from transformer_mt.training.update import optimizer as optimizer_module
from transformer_mt.training.update.activation_checkpointing import checkpoint_activations
from transformer_mt.training.update.loss import plain_cross_entropy, projected_cross_entropy
from transformer_mt.training.update.muon import Muon
from transformer_mt.training.update.optimizer import (
    build_optimizer,
    load_optimizer_tensors,
    optimizer_tensors,
)
from transformer_mt.training.update.schedule import learning_rate
from transformer_mt.training.update.step import Objective, Updater

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


def updater(model, dtype=torch.float32, max_grad_norm=1.0, objective=None, ranks=None, **settings):
    own = {key: settings.pop(key) for key in ("micro_batch_tokens", "may_halve") if key in settings}
    optimizer = build_optimizer(model, TrainConfig(**settings))
    objective = objective or Objective(model, 0.1)
    return Updater(objective, optimizer, CPU, dtype, max_grad_norm, ranks or Ranks(), **own)


@pytest.mark.parametrize("chunk", [2**23, 11, 30])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loss_equals_torchs_in_value_and_gradients(monkeypatch, chunk, smoothing, dtype):
    """Whatever the chunks: all at once, one token a chunk, two and a rest of one."""
    monkeypatch.setattr(loss_module, "_CHUNK_ON_CPU", chunk)
    torch.manual_seed(0)
    hidden, weight = torch.randn(13, 6) * 2, torch.randn(11, 6)
    targets = torch.randint(0, 11, (13,))
    losses, gradients = [], []
    for cross_entropy in (projected_cross_entropy, plain_cross_entropy):
        at = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        with autocast(CPU, dtype):
            loss, nll = cross_entropy(*at, targets, smoothing)
        (loss / 7).backward()
        losses.append((loss.item(), nll.item()))
        gradients.append([tensor.grad for tensor in at])
    exact = dtype == torch.float32
    assert losses[0] == pytest.approx(losses[1], rel=1e-5 if exact else 2e-2)
    for mine, theirs in zip(*gradients):
        torch.testing.assert_close(mine, theirs, atol=1e-5 if exact else 3e-2, rtol=1e-5 if exact else 3e-2)


def test_loss_gradient_is_that_of_the_function():
    torch.manual_seed(0)
    hidden, weight = torch.randn(4, 3, dtype=torch.float64), torch.randn(7, 3, dtype=torch.float64)
    targets = torch.randint(1, 7, (4,))

    def numeric(tensor, i, h=1e-2):
        values = []
        for sign in (1, -1):
            tensor.view(-1)[i] += sign * h
            values.append(projected_cross_entropy(hidden, weight, targets, 0.1)[0].item())
            tensor.view(-1)[i] -= sign * h
        return (values[0] - values[1]) / (2 * h)

    at = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    projected_cross_entropy(*at, targets, 0.1)[0].backward()
    for leaf, tensor in zip(at, (hidden, weight)):
        for i in (0, 5, 11):
            assert leaf.grad.view(-1)[i].item() == pytest.approx(numeric(tensor, i), abs=2e-3)


def test_small_gradients_of_logits_are_not_rounded_to_zero_in_float16():
    """With 60,000 pieces p - target is about 2e-6 for most of them, where float16 has two digits left."""
    torch.manual_seed(0)
    hidden, weight = torch.randn(4, 8) * 0.02, torch.randn(60_000, 8) * 0.02
    targets = torch.randint(0, 60_000, (4,))
    gradients = []
    for dtype in (torch.float32, torch.float16):
        at = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        with autocast(CPU, dtype):
            loss, _ = projected_cross_entropy(*at, targets, 0.1)
        loss.backward()
        gradients.append(at[1].grad)
    others = torch.ones(60_000, dtype=torch.bool)
    others[targets] = False
    error = (gradients[1] - gradients[0])[others].norm() / gradients[0][others].norm()
    assert error < 0.004  # rounded without the factor: 0.02


def test_loss_of_a_token_thought_impossible_is_finite():
    hidden, weight = torch.tensor([[300.0]]), torch.tensor([[1.0], [-1.0]])
    loss, nll = projected_cross_entropy(hidden, weight, torch.tensor([1]), 0.1)
    assert loss.isfinite() and nll.item() > 80


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
    one = updater(models[0], eps=1e-3).update([batch_of(rows)], 0.01).result()
    four = updater(models[1], eps=1e-3).update([batch_of(part) for part in parts], 0.01).result()
    assert one.num_tokens == four.num_tokens
    assert one.loss == pytest.approx(four.loss, rel=1e-5)
    assert one.grad_norm == pytest.approx(four.grad_norm, rel=1e-4)
    optimizer_state = [dict(model.named_parameters()) for model in models]
    for name, weight in optimizer_state[0].items():
        torch.testing.assert_close(weight, optimizer_state[1][name], atol=1e-5, rtol=1e-4)


def test_gradient_is_of_the_mean_over_target_tokens():
    rows, model = pairs(5), tiny_model()
    batch = batch_of(rows)
    logits = model(batch.src, batch.src_mask, batch.tgt_in).flatten(0, 1)
    targets = batch.tgt_out.flatten()
    loss = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=0.1, ignore_index=PAD)
    (loss / batch.num_tokens).backward()
    expected = torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()
    result = updater(tiny_model(), max_grad_norm=0.0).update([batch], 0.0).result()
    assert result.grad_norm == pytest.approx(expected, rel=1e-4)
    assert result.loss == pytest.approx(loss.item(), rel=1e-5)
    assert result.num_tokens == sum(len(tgt) + 1 for _, tgt in rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_clip_sees_unscaled_gradients(dtype):
    """With Adam's moments at beta 0 the step only shows directions; the length is looked at before it."""
    model = tiny_model()
    seen = []
    run = updater(model, dtype, max_grad_norm=0.01)
    step = run.optimizer.step
    run.optimizer.step = lambda *a, **k: (
        seen.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()),
        step(*a, **k),
    )
    result = run.update([batch_of(pairs(8))], 0.001).result()
    assert result.grad_norm > 0.1
    assert seen == pytest.approx([0.01], rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_precision_learns(dtype):
    model, batch = tiny_model(), batch_of(pairs(8))
    run = updater(model, dtype)
    losses = [run.update([batch], 0.01).result().loss for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_non_finite_update_is_skipped_and_changes_nothing(poison, kind, dtype):
    model, batch = tiny_model(), batch_of(pairs(8))
    run = updater(model, dtype, optimizer=kind, weight_decay=0.1)
    run.update([batch], 0.01)
    bias = model.encoder.layers[0].feed_forward.outer.bias
    kept = bias.data[0].clone()
    bias.data[0] = poison
    before = [parameter.clone() for parameter in model.parameters()]
    moments = {name: value.clone() for name, value in optimizer_tensors(run.optimizer, model).items()}
    assert run.update([batch], 0.01).result().skipped
    for old, parameter in zip(before, model.parameters()):
        torch.testing.assert_close(old, parameter.data, equal_nan=True, rtol=0, atol=0)
    for name, value in optimizer_tensors(run.optimizer, model).items():
        assert torch.equal(value, moments[name])
    bias.data[0] = kept
    assert not run.update([batch], 0.01).result().skipped


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["adamw", "adam", "muon"])
def test_an_update_reads_no_number_from_the_device(kind, dtype):
    """Reading a number that a GPU has yet to compute blocks until it is there. Here tensors have no
    numbers, and say so when they are asked.
    """
    batch = batch_of(pairs(8))
    with FakeTensorMode(allow_non_fake_inputs=True):
        run = updater(tiny_model(dropout=0.1), dtype, optimizer=kind, weight_decay=0.1)
        results = [run.update([batch], 0.01) for _ in range(2)]
        with pytest.raises(DataDependentOutputException):
            results[-1].result()


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


def jordans_iteration(matrices):
    """That of torch's Muon (Jordan et al. 2024)."""
    x = matrices if matrices.size(1) <= matrices.size(2) else matrices.mT
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x if matrices.size(1) <= matrices.size(2) else x.mT


@pytest.mark.parametrize("together", [2**24, 600, 1], ids=["all", "two", "each alone"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_muon_steps_as_torchs_does_matrix_by_matrix(monkeypatch, weight_decay, together):
    monkeypatch.setattr(muon_module, "_MAX_STACKED_ELEMENTS", together)
    monkeypatch.setattr(muon_module, "orthogonal", jordans_iteration)
    shapes = [(16, 16), (32, 16), (16, 32), (16, 16), (1, 16), (16, 16)]
    ours, torchs = ([torch.nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2))
    optimizer = Muon(ours, lr=0.01, weight_decay=weight_decay, dtype=torch.bfloat16)
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


def test_progress_remembers_the_best_and_counts_the_stale():
    progress = Progress()
    for step, (score, is_best) in enumerate([(1.0, True), (3.0, True), (2.0, False), (3.0, False)], start=1):
        progress.step = step
        assert progress.validated(score) is is_best
    assert (progress.best_step, progress.best_score, progress.stale) == (2, 3.0, 2)
    copy = Progress()
    copy.load_state_dict(progress.state_dict())
    assert copy == progress


class Scarce(Objective):
    """Has memory for batches of so many positions only."""

    room = 40

    def forward(self, batch):
        if batch.num_positions > self.room:
            raise torch.OutOfMemoryError("no room")
        return super().forward(batch)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_running_out_of_memory_makes_micro_batches_and_the_same_update(said, accumulate):
    updates = [[batch_of(pairs(23, 10 * i + j)) for j in range(accumulate)] for i in range(3)]
    models = [tiny_model(), tiny_model()]
    plain = updater(models[0], optimizer="adamw", eps=1e-3)
    scarce = updater(models[1], objective=Scarce(models[1], 0.1), optimizer="adamw", eps=1e-3)
    for batches in updates:
        expected, result = plain.update(batches, 0.01).result(), scarce.update(batches, 0.01).result()
        assert (result.num_tokens, result.skipped) == (expected.num_tokens, False)
        assert result.loss == pytest.approx(expected.loss, rel=1e-5)
        assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-4), (
            "what was computed before counts once"
        )
    for left, right in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-4)
    assert said[-1].endswith("the update is the same, train.batch_tokens need not change")
    assert len(said) < 5, "it must remember what fits, not find it again in each update"


def test_batches_are_computed_in_parts_from_the_beginning_where_the_config_says_so(said):
    model = tiny_model()
    run = updater(model, objective=Scarce(model, 0.1), micro_batch_tokens=40)
    run.update([batch_of(pairs(23))], 0.01).result()
    assert said == []


def test_an_update_that_is_only_tried_is_not_computed_in_parts(said):
    model = tiny_model()
    with pytest.raises(torch.OutOfMemoryError):
        updater(model, objective=Scarce(model, 0.1), may_halve=False).update([batch_of(pairs(23))], 0.01)
    assert said == []


def test_with_several_ranks_it_is_told_how_to_go_on_since_the_others_cannot_wait():
    class Two(Ranks):
        def sum(self, *values):
            return list(values)

    model, batch = tiny_model(), batch_of(pairs(23))
    objective = Scarce(model, 0.1)
    run = updater(model, objective=objective, ranks=Two(size=2))
    size = batch.num_positions
    advice = rf"a batch of {size} positions; .* train.micro_batch_tokens={size // 2} to resume"
    with pytest.raises(WorkError, match=advice):
        run.update([batch], 0.01)
    with pytest.raises(WorkError, match="one sentence of"):
        objective.room = 1
        run.update([batch_of(pairs(1))], 0.01)


def test_an_idle_batch_adds_nothing():
    """FSDP2's ranks must make as many passes each."""
    model = tiny_model()
    objective, batch = Objective(model, 0.1), batch_of(pairs(5))
    loss, nll = objective(batch.idle())
    loss.backward()
    assert (loss.item(), nll.item(), batch.idle().num_tokens) == (0.0, 0.0, 0)
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in model.parameters())


def test_gradients_travel_once_an_update_whatever_it_accumulates():
    sent = []

    def count(state, bucket):
        sent.append(bucket.index())
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        model = tiny_model()
        objective = torch.nn.parallel.DistributedDataParallel(Objective(model, 0.1))
        objective.register_comm_hook(None, count)
        run = updater(model, objective=objective)
        for accumulate in (1, 4):
            sent.clear()
            run.update([batch_of(pairs(5, seed)) for seed in range(accumulate)], 0.01).result()
            assert sent == [0]
    finally:
        torch.distributed.destroy_process_group()


def test_one_sentence_that_does_not_fit_is_told_in_one_line():
    model = tiny_model()
    objective = Scarce(model, 0.1)
    objective.room = 1
    run = updater(model, objective=objective)
    with pytest.raises(
        WorkError, match=r"not enough memory for one sentence of \d+ positions; .*data.max_length"
    ):
        run.update([batch_of(pairs(3))], 0.01)
