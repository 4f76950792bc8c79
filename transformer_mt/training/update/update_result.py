"""The numbers of one update."""

from dataclasses import dataclass

from torch import Tensor

from transformer_mt.ranks import Ranks


@dataclass(frozen=True)
class UpdateResult:
    """The result of one update."""

    loss: float
    """Smoothed loss, summed over the target tokens."""
    nll: float
    """Negative log-likelihood, summed over the target tokens."""
    num_tokens: int
    grad_norm: float
    """Length of the gradient before clipping."""
    skipped: bool
    """The gradient was not finite: nothing was changed."""
    layers: dict[str, list[float]] | None = None
    """The length of the gradient and the relative change of each layer (layer_norms.py), if asked for."""


class PendingResult:
    """The result of an update that the device may still compute; `result` waits for it."""

    def __init__(
        self, values: Tensor, num_tokens: int, ranks: Ranks, layers: dict[str, Tensor] | None = None
    ) -> None:
        self._values, self._num_tokens, self._ranks, self._layers = values, num_tokens, ranks, layers

    def result(self) -> UpdateResult:
        """Loss and nll are summed over the ranks: a collective operation."""
        loss, nll, grad_norm, finite = self._values.tolist()
        loss, nll = self._ranks.sum(loss, nll)
        layers = None
        if self._layers is not None:
            layers = {name: values.tolist() for name, values in self._layers.items()}
        return UpdateResult(loss, nll, self._num_tokens, grad_norm, not finite, layers)
