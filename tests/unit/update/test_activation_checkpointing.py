"""Activations that are computed twice instead of kept."""

import pytest
import torch

from tests.helpers.updates import batch_of, pairs, tiny_model, updater
from transformer_mt.update.acceleration import checkpoint_activations


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
