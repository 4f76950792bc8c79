"""One update: gradients, clipping, precision, memory, ranks."""

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from tests.helpers.companions import needs
from tests.helpers.updates import (
    CPU,
    ListedRows,
    Scarce,
    batch_of,
    packed_batch_of,
    pairs,
    tiny_model,
    updater,
)
from transformer_mt.config import TrainConfig
from transformer_mt.data.vocabulary.tokenizer import PAD
from transformer_mt.errors import WorkError
from transformer_mt.files import read_objects
from transformer_mt.ranks import Ranks
from transformer_mt.run.validation import validation_loss
from transformer_mt.update.build_updater import build_loss
from transformer_mt.update.loss import CrossEntropy
from transformer_mt.update.optimizer import build_optimizer, optimizer_tensors
from transformer_mt.update.step import Objective, Updater


def test_the_validation_loss_is_computed_in_parts_as_updates_are():
    """Otherwise a training that fits the memory in parts would end at its first validation."""
    rows = ListedRows(*zip(*pairs(9)))
    sizes, model = [], tiny_model().eval()
    model.decoder.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].shape[:2].numel()))
    losses = [validation_loss(model, rows, 500, CPU, Ranks(), micro_batch_tokens=most) for most in (0, 30)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert sizes[0] > 30 and len(sizes) > 2 and max(sizes[1:]) <= 30


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_precision_learns(dtype):
    model, batch = tiny_model(), batch_of(pairs(8))
    run = updater(model, dtype)
    losses = [run.update([batch], 0.01).result().loss for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


@pytest.mark.parametrize(
    "poison, kind, dtype",
    [
        (float("nan"), "adamw", torch.float32),
        (float("inf"), "muon", torch.float32),
        (float("inf"), "adamw", torch.float16),
        (float("nan"), "muon", torch.float16),
    ],
)
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


@pytest.mark.parametrize(
    "kind, dtype",
    [("adamw", torch.float32), ("adam", torch.float16), ("muon", torch.bfloat16), ("muon", torch.float16)],
)
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


def test_running_out_of_memory_makes_micro_batches_and_the_same_update(said):
    updates = [[batch_of(pairs(23, 10 * i + j)) for j in range(3)] for i in range(3)]
    models = [tiny_model(), tiny_model()]
    plain = updater(models[0], optimizer="adamw", eps=1e-3)
    scarce = updater(models[1], objective=Scarce(models[1], CrossEntropy(0.1)), optimizer="adamw", eps=1e-3)
    for batches in updates:
        expected, result = plain.update(batches, 0.01).result(), scarce.update(batches, 0.01).result()
        assert (result.num_tokens, result.skipped) == (expected.num_tokens, False)
        assert result.loss == pytest.approx(expected.loss, rel=1e-5)
        # What was computed before counts once.
        assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-4)
    for left, right in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-4)
    assert said[-1].endswith("the update keeps its tokens, train.batch_tokens can stay")
    assert len(said) < 5, "it must remember what fits, not find it again in each update"


def test_batches_are_computed_in_parts_from_the_beginning_where_the_config_says_so(said):
    model = tiny_model()
    run = updater(model, objective=Scarce(model, CrossEntropy(0.1)), micro_batch_tokens=40)
    run.update([batch_of(pairs(23))], 0.01).result()
    assert said == []


def test_an_update_that_is_only_tried_is_not_computed_in_parts(said):
    model = tiny_model()
    with pytest.raises(torch.OutOfMemoryError):
        updater(model, objective=Scarce(model, CrossEntropy(0.1)), may_halve=False).update(
            [batch_of(pairs(23))], 0.01
        )
    assert said == []


def test_with_several_ranks_it_is_told_how_to_go_on_since_the_others_cannot_wait():
    class Two(Ranks):
        def sum(self, *values):
            return list(values)

    model, batch = tiny_model(), batch_of(pairs(23))
    objective = Scarce(model, CrossEntropy(0.1))
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
    objective, batch = Objective(model, CrossEntropy(0.1)), batch_of(pairs(5))
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
        objective = torch.nn.parallel.DistributedDataParallel(Objective(model, CrossEntropy(0.1)))
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
    objective = Scarce(model, CrossEntropy(0.1))
    objective.room = 1
    run = updater(model, objective=objective)
    with pytest.raises(
        WorkError, match=r"lacks the memory for one sentence of \d+ positions; .*data.max_length"
    ):
        run.update([batch_of(pairs(3))], 0.01)


def test_what_cannot_be_compiled_is_computed_without(said):
    """`compile: auto` on a machine without a compiler, or without Python.h."""
    from torch._inductor import config

    torch._dynamo.reset()
    batch = packed_batch_of(pairs(4))
    expected, _ = Objective(tiny_model(), CrossEntropy(0.1))(batch)
    with config.patch({"cpp.cxx": ("/nowhere/g++",), "force_disable_caches": True}):
        objective = Objective(tiny_model(), CrossEntropy(0.1), compiled=True, must_compile=False)
        for _ in range(2):
            loss, _ = objective(batch)
            torch.testing.assert_close(loss, expected)
        assert [line.split(":")[0] for line in said] == ["note"]
        assert "training without torch.compile, which fails here: InvalidCxxCompiler" in said[0]
        with pytest.raises(RuntimeError, match="InvalidCxxCompiler"):
            Objective(tiny_model(), CrossEntropy(0.1), compiled=True)(batch)
    torch._dynamo.reset()


# The gradient and the change of each layer.


def test_gradients_and_changes_are_those_of_each_layers_weights():
    model = tiny_model(num_encoder_layers=2)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    loss, _ = Objective(model, CrossEntropy(0.1))(batch_of(pairs(9)))
    (loss / batch_of(pairs(9)).num_tokens).backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    optimizer, objective = build_optimizer(model, TrainConfig()), Objective(model, CrossEntropy(0.1))
    run = Updater(objective, optimizer, CPU, torch.float32, 0.01, Ranks(), measures_layers=True)
    layers = run.update([batch_of(pairs(9))], 0.01, by_layer=True).result().layers
    assert set(layers) == {"src_embedding", "encoder.0", "encoder.1", "encoder", "decoder.0", "decoder"}
    for layer, (gradient, change) in layers.items():
        start = f"{layer[:-2]}.layers.{layer[-1]}." if layer[-1].isdigit() else f"{layer}."
        inside = [
            name for name in before
            if name.startswith(start) and (layer[-1].isdigit() or ".layers." not in name)
        ]  # fmt: skip
        lengths = [
            torch.cat([tensor(name).flatten() for name in inside]).norm().item()
            for tensor in (
                gradients.__getitem__,
                lambda name: model.get_parameter(name) - before[name],
                before.__getitem__,
            )
        ]
        assert inside and gradient == pytest.approx(lengths[0], rel=1e-4)
        assert change == pytest.approx(lengths[1] / lengths[2], rel=1e-4)
    assert run.update([batch_of(pairs(9))], 0.01).result().layers is None


def test_a_run_logs_them_when_asked(write_config, tmp_path, cli):
    for asked in (False, True):
        config = write_config(train={"max_updates": 4, "log_every": 2, "log_gradients": asked})
        status, _, err = cli("train", config, "--out", tmp_path / str(asked))
        assert status == 0, err
    entries = [
        [entry for entry in read_objects(tmp_path / name / "metrics.jsonl") if entry["event"] == "train"]
        for name in ("False", "True")
    ]
    for plain, logged in zip(*entries):
        assert "change_by_layer" not in plain and plain["loss"] == logged["loss"]
        squares = sum(value**2 for value in logged["grad_norm_by_layer"].values())
        assert squares**0.5 > 0 and min(logged["change_by_layer"].values()) > 0


# The same sentences in any layout of batches make the same update.


ROWS = pairs(23)


def wider(batch):
    """With more padding on each side."""
    src, tgt_in, tgt_out = (F.pad(ids, (0, 3), value=PAD) for ids in (batch.src, batch.tgt_in, batch.tgt_out))
    mask, real = F.pad(batch.src_mask, (0, 3)), (tgt_out != PAD).flatten().nonzero()[:, 0]
    return type(batch)(src, mask, tgt_in, tgt_out, real, batch.num_tokens)


def divided(size, make=batch_of):
    return [make(ROWS[i : i + size]) for i in range(0, len(ROWS), size)]


# (batches, settings of the Updater)
LAYOUTS = {
    "backwards": ([batch_of(ROWS[::-1])], {}),
    "more padding": ([wider(batch_of(ROWS))], {}),
    "sentence by sentence": (divided(1), {}),
    "accumulated, unequal": ([batch_of(ROWS[:2]), batch_of(ROWS[2:19]), batch_of(ROWS[19:])], {}),
    "micro-batches": ([batch_of(ROWS)], {"micro_batch_tokens": 60}),
    "micro-batches of a sentence": ([batch_of(ROWS)], {"micro_batch_tokens": 1}),
    "accumulated micro-batches": (divided(12), {"micro_batch_tokens": 40}),
    "with an idle batch": ([batch_of(ROWS), batch_of(ROWS[:3]).idle()], {}),
    "two threads": ([wider(batch_of(ROWS * 3))], {"threads": 2}),
    "packed": ([packed_batch_of(ROWS)], {}),
    "packed with empty rows": ([packed_batch_of(ROWS, num_rows=20)], {}),
    "packed, accumulated": (divided(8, packed_batch_of), {}),
    "packed micro-batches": ([packed_batch_of(ROWS)], {"micro_batch_tokens": 60}),
}
LOSSES = {
    "cross_entropy": {},
    "r_drop": {"weight": 2.0},
    "simcut": {"weight": 2.0, "cut_off": 0.0},  # which tokens are cut off depends on the layout
}
# Layouts for the losses of a companion.
SOME = ("sentence by sentence", "accumulated micro-batches", "two threads", "packed micro-batches")


def update(batches, loss, micro_batch_tokens=0, threads=1):
    model = tiny_model()
    train = TrainConfig(loss={loss: LOSSES[loss]}, optimizer="adamw", eps=1e-3)
    optimizer = build_optimizer(model, train)
    objective = Objective(model, build_loss(train))
    run = Updater(objective, optimizer, CPU, torch.float32, 1.0, Ranks(), micro_batch_tokens, threads)
    return run.update(batches, 0.01).result(), model.state_dict()


@cache
def plain_update(loss, times):
    return update([batch_of(ROWS * times)], loss)


@pytest.mark.parametrize(
    "loss, layout",
    [
        *(("cross_entropy", layout) for layout in LAYOUTS),
        *(pytest.param(loss, layout, marks=needs("lab")) for loss in ("r_drop", "simcut") for layout in SOME),
    ],
)
def test_an_update_is_the_same_in_any_layout(layout, loss):
    batches, settings = LAYOUTS[layout]
    times = round(sum(batch.num_tokens for batch in batches) / batch_of(ROWS).num_tokens)
    expected, weights = plain_update(loss, times)
    result, weights_there = update(batches, loss, **settings)
    assert (result.num_tokens, result.skipped) == (expected.num_tokens, False)
    assert (result.loss, result.nll) == pytest.approx((expected.loss, expected.nll), rel=1e-5)
    assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-4)
    for name, weight in weights.items():
        torch.testing.assert_close(weights_there[name], weight, atol=2e-5, rtol=1e-4)


# Copies of the weights in bfloat16.


@pytest.mark.parametrize(
    "keys", [{}, {"norm": "post", "position": "relative", "feed_forward": "swiglu"}], ids=str
)
def test_an_objective_with_copies_is_that_of_autocast(keys):
    """To the last bit: loss, and every gradient."""
    found = []
    for copies in (False, True):
        model = tiny_model(num_encoder_layers=2, **keys)
        with torch.autocast("cpu", torch.bfloat16):
            loss, nll = Objective(model, CrossEntropy(0.1), copies_weights=copies)(batch_of(pairs(9)))
        loss.backward()
        found.append([loss, nll, *(parameter.grad for parameter in model.parameters())])
        assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert all(torch.equal(left, right) for left, right in zip(*found))
    assert found[1][-1].dtype == torch.float32


def test_without_lower_precision_nothing_is_copied():
    model, batch = tiny_model(), batch_of(pairs(3))
    found = [Objective(model, CrossEntropy(0.1), copies_weights=copies)(batch) for copies in (True, False)]
    assert all(torch.equal(left, right) for left, right in zip(*found))
