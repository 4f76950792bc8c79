"""The attention weights that a model computes, for callers that want to see them."""

from torch import Tensor, nn


class AttentionRecorder:
    """Collects the weights of some attentions during the calls it is given to.

    It is an argument, so that several threads can record one model. The weights are computed by the plain
    formula in addition to the fused path: without a recorder nothing is slower.
    """

    def __init__(self, *attentions: nn.Module) -> None:
        self._seen: dict[nn.Module, list[Tensor]] = {attention: [] for attention in attentions}

    def wants(self, attention: nn.Module) -> bool:
        return attention in self._seen

    def add(self, attention: nn.Module, weights_BHTS: Tensor) -> None:
        self._seen[attention].append(weights_BHTS)

    def of(self, attention: nn.Module) -> list[Tensor]:
        """The weights (B, H, T, S) of each of its calls, oldest first."""
        return self._seen[attention]
