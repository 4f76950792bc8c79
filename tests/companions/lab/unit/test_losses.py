"""The losses of papers against their plain formulas, in float64."""

import pytest
import torch
import torch.nn.functional as F

from tests.helpers.faults import loss_chunks
from tests.helpers.updates import CPU, batch_of, packed_batch_of, pairs, tiny_model
from transformer_mt.config import TrainConfig
from transformer_mt.errors import InputError
from transformer_mt.model.interface import NEVER
from transformer_mt.model.transformer import tokens_cut_off, without_cut_off_tokens
from transformer_mt.ranks import Ranks
from transformer_mt.update.build_updater import build_loss
from transformer_mt.update.loss import CrossEntropy, Predictions
from transformer_mt.update.optimizer import build_optimizer
from transformer_mt.update.step import Objective, Updater

SMOOTHING = 0.1


def kl(log_p, log_q):
    return F.kl_div(log_q, log_p, reduction="sum", log_target=True)


def nll(log_p, targets):
    return F.cross_entropy(log_p, targets, reduction="sum", label_smoothing=SMOOTHING)


PLAIN = {  # from the papers, of logits
    "r_drop": lambda p, q, targets: (nll(p, targets) + nll(q, targets) + 5.0 * (kl(p, q) + kl(q, p)) / 2) / 2,
    "simcut": lambda p, q, targets: nll(p, targets) + 3.0 * kl(p, q),
    "token_distillation": lambda p, q, targets: (
        0.5 * nll(p, targets) + 0.5 * F.cross_entropy(p, q.exp(), reduction="sum")
    ),
}


def loss_of(name, **settings):
    teacher = {"teacher": "runs/t"} if name == "token_distillation" else {}
    return build_loss(TrainConfig(loss={name: {**teacher, **settings}}, label_smoothing=SMOOTHING))


@pytest.mark.parametrize("chunk", [256, 3])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("name", PLAIN)
def test_a_loss_and_its_gradients_are_those_of_the_formula(monkeypatch, name, has_bias, chunk):
    loss_chunks(monkeypatch, chunk)
    torch.manual_seed(0)
    hidden = [torch.randn(7, 4, dtype=torch.float64) for _ in range(2)]
    targets, real = torch.tensor([3, 5, 8, 0, 1, 5, 0]), torch.tensor([1, 1, 1, 0, 1, 1, 0]).bool()
    outputs = [torch.nn.Linear(4, 9, bias=has_bias).double() for _ in range(2)]
    if name != "token_distillation":
        outputs[1] = outputs[0]
    leaves = [hidden[0].requires_grad_(), outputs[0].weight]
    if has_bias:
        outputs[0].bias.data[7] = outputs[1].bias.data[7] = NEVER
        leaves.append(outputs[0].bias)
    if name != "token_distillation":
        leaves.append(hidden[1].requires_grad_())
    passes = [Predictions(h, targets, output, real, compiled=False) for h, output in zip(hidden, outputs)]
    loss = loss_of(name)
    given = iter(passes)
    if name == "token_distillation":
        loss._teacher = type("Teacher", (), {"predictions": lambda self, batch: passes[1]})()
    value, plain_nll = loss(None, lambda batch, cut_off=0.0: next(given))
    written = torch.arange(9) != (7 if has_bias else -1)
    log_probs = [output(h)[real][:, written].log_softmax(-1) for h, output in zip(hidden, outputs)]
    if name == "token_distillation":
        log_probs[1] = log_probs[1].detach()
    numbers = (written.cumsum(0) - 1)[targets[real]]
    expected = PLAIN[name](*log_probs, numbers)
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    assert plain_nll.item() == pytest.approx(
        F.nll_loss(log_probs[0], numbers, reduction="sum").item(), rel=1e-5
    )
    for mine, theirs in zip(
        torch.autograd.grad(value / 3, leaves), torch.autograd.grad(expected / 3, leaves)
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def updated(loss, batches, dtype=torch.float32, threads=1, seed=1, **model_settings):
    model = tiny_model(dropout=0.2, **model_settings)
    torch.manual_seed(seed)
    optimizer = build_optimizer(model, TrainConfig())
    run = Updater(Objective(model, loss), optimizer, CPU, dtype, 1.0, Ranks(), 0, threads)
    results = [run.update([batch], 0.01).result() for batch in batches]
    return results, model.state_dict()


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("make", [batch_of, packed_batch_of])
def test_with_weight_0_the_bytes_are_those_of_cross_entropy(name, make):
    batches = [make(pairs(9, seed)) for seed in range(3)]
    results, weights = updated(loss_of(name, weight=0.0), batches)
    expected, plain = updated(CrossEntropy(SMOOTHING), batches)
    assert results == expected
    assert all(torch.equal(weights[key], plain[key]) for key in plain)


@pytest.mark.parametrize(
    "name, dtype", [("simcut", torch.float32), ("r_drop", torch.bfloat16), ("r_drop", torch.float16)]
)
def test_each_learns_in_every_precision_and_the_same_seed_gives_the_same_bits(name, dtype):
    threads = 1 if dtype == torch.float16 else 2
    batches = [batch_of(pairs(40))] * 25
    results, _ = updated(loss_of(name), batches, dtype, threads)
    assert results[-1].loss < 0.8 * results[0].loss and not any(result.skipped for result in results)
    assert updated(loss_of(name), batches[:6], dtype, threads)[0] == results[:6]


@pytest.mark.parametrize(
    "settings", [{"kind": "recurrent"}, {"position": "rotary"}, {"kind": "decoder"}], ids=str
)
def test_tokens_are_cut_off_in_models_of_each_kind(settings):
    model, batch = tiny_model(**settings), batch_of(pairs(9))
    losses = {
        cut_off: Objective(model, loss_of("simcut", cut_off=cut_off))(batch)[0].item()
        for cut_off in (0.0, 0.5)
    }
    assert (
        losses[0.5]
        > losses[0.0]
        == pytest.approx(Objective(model, CrossEntropy(SMOOTHING))(batch)[0].item(), rel=1e-5)
    )


def test_only_tokens_of_sentences_are_cut_off_and_only_within_the_block():
    torch.manual_seed(0)
    ids, x = torch.randint(0, 10, (50, 40)), torch.ones(50, 40, 3)
    with tokens_cut_off(0.25, kept_below=4):
        kept = without_cut_off_tokens(x, ids)[..., 0] > 0
    assert kept[ids < 4].all()
    assert kept[ids >= 4].float().mean().item() == pytest.approx(0.75, abs=0.05)
    assert without_cut_off_tokens(x, ids) is x


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"weigt": 1.0}, "train.loss.simcut: `weigt` is not a key; did you mean `weight`?"),
        ({"weight": -1.0}, "train.loss.simcut: `weight` must be greater than or equal to 0, but is -1.0"),
        ({"cut_off": "much"}, "train.loss.simcut: `cut_off` must be a number, but is 'much'"),
    ],
)
def test_wrong_settings_are_told_in_one_line(settings, message):
    with pytest.raises(InputError) as error:
        loss_of("simcut", **settings)
    assert str(error.value) == message
