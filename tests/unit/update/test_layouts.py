"""The same sentences in any layout of batches make the same update."""

import pytest
import torch
import torch.nn.functional as F

from tests.helpers.companions import needs
from tests.helpers.updates import CPU, batch_of, packed_batch_of, pairs, tiny_model
from transformer_mt.config import TrainConfig
from transformer_mt.data.vocabulary.tokenizer import PAD
from transformer_mt.ranks import Ranks
from transformer_mt.update.acceleration import checkpoint_activations
from transformer_mt.update.build_updater import build_loss
from transformer_mt.update.optimizer import build_optimizer
from transformer_mt.update.step import Objective, Updater

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
    "one batch": ([batch_of(ROWS)], {}),
    "backwards": ([batch_of(ROWS[::-1])], {}),
    "sorted": ([batch_of(sorted(ROWS, key=lambda row: len(row[0])))], {}),
    "more padding": ([wider(batch_of(ROWS))], {}),
    "sentence by sentence": (divided(1), {}),
    "accumulated": (divided(5), {}),
    "accumulated, unequal": ([batch_of(ROWS[:2]), batch_of(ROWS[2:19]), batch_of(ROWS[19:])], {}),
    "micro-batches": ([batch_of(ROWS)], {"micro_batch_tokens": 60}),
    "micro-batches of a sentence": ([batch_of(ROWS)], {"micro_batch_tokens": 1}),
    "accumulated micro-batches": (divided(12), {"micro_batch_tokens": 40}),
    "with an idle batch": ([batch_of(ROWS), batch_of(ROWS[:3]).idle()], {}),
    "two threads": ([wider(batch_of(ROWS * 3))], {"threads": 2}),
    "packed": ([packed_batch_of(ROWS)], {}),
    "packed in wider rows": ([packed_batch_of(ROWS, length=60)], {}),
    "packed with empty rows": ([packed_batch_of(ROWS, num_rows=20)], {}),
    "packed, accumulated": (divided(8, packed_batch_of), {}),
    "packed micro-batches": ([packed_batch_of(ROWS)], {"micro_batch_tokens": 60}),
    "activations computed again": ([batch_of(ROWS)], {"checkpointed": True}),
}
LOSSES = {
    "cross_entropy": {},
    "r_drop": {"weight": 2.0},
    "simcut": {"weight": 2.0, "cut_off": 0.0},  # which tokens are cut off depends on the layout
}


def update(batches, loss, checkpointed=False, micro_batch_tokens=0, threads=1):
    model = tiny_model()
    if checkpointed:
        checkpoint_activations(model.blocks)
    train = TrainConfig(loss={loss: LOSSES[loss]}, optimizer="adamw", eps=1e-3)
    optimizer = build_optimizer(model, train)
    objective = Objective(model, build_loss(train))
    run = Updater(objective, optimizer, CPU, torch.float32, 1.0, Ranks(), micro_batch_tokens, threads)
    return run.update(batches, 0.01).result(), model.state_dict()


@pytest.mark.parametrize(
    "loss",
    [
        "cross_entropy",
        *(pytest.param(name, marks=needs("lab")) for name in LOSSES if name != "cross_entropy"),
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_update_is_the_same_in_any_layout(layout, loss):
    batches, settings = LAYOUTS[layout]
    times = round(sum(batch.num_tokens for batch in batches) / batch_of(ROWS).num_tokens)
    expected, weights = update([batch_of(ROWS * times)], loss)
    result, weights_there = update(batches, loss, **settings)
    assert (result.num_tokens, result.skipped) == (expected.num_tokens, False)
    assert (result.loss, result.nll) == pytest.approx((expected.loss, expected.nll), rel=1e-5)
    assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-4)
    for name, weight in weights.items():
        torch.testing.assert_close(weights_there[name], weight, atol=2e-5, rtol=1e-4)
