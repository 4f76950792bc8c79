"""The exponential moving average of the weights: `train.average: ema`."""

import torch
from torch import Tensor, nn

from transformer_mt.training.update.sharding import copy_full, on_cpu


class MovingAverage:
    """After update t the average is d times itself plus 1 - d times the weights, with d = min(`decay`,
    (1 + t) / (10 + t)), so that it soon forgets the random weights of the beginning.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Begins with the weights of the model, which may be sharded."""
        trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._names, self._weights, self._decay = list(trained), list(trained.values()), decay
        self._average = [weight.detach().clone() for weight in self._weights]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take the weights after update `step`."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._average, [weight.detach() for weight in self._weights], 1 - decay)

    def weights(self, keep: bool = True) -> dict[str, Tensor]:
        """The average on the CPU; nothing on a rank that need not `keep` it. A collective operation."""
        full = {name: on_cpu(tensor, keep) for name, tensor in zip(self._names, self._average)}
        return {name: tensor for name, tensor in full.items() if tensor is not None}

    def load(self, saved: dict[str, Tensor]) -> None:
        """Continue with a saved average; without one, with the weights of the model."""
        for name, average, weight in zip(self._names, self._average, self._weights):
            if name in saved:
                copy_full(average, saved[name])
            else:
                average.copy_(weight.detach())
