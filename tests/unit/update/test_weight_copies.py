"""Copies of the weights in bfloat16."""

import pytest
import torch

from tests.helpers.updates import batch_of, pairs, tiny_model
from transformer_mt.update.loss import CrossEntropy
from transformer_mt.update.step import Objective


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
