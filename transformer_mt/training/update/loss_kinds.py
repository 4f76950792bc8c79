"""The losses of `train.loss`: sums over the target tokens of a batch.

Letters: R target tokens, D width, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from transformer_mt.config import TrainConfig
from transformer_mt.data.batches.batch import Batch
from transformer_mt.training.update.chunked_loss import projected_cross_entropy


@dataclass(frozen=True)
class Predictions:
    """The outputs of the decoder at the target tokens of a batch, which the projection makes logits of."""

    hidden_RD: Tensor
    targets_R: Tensor
    """Ids of the tokens that follow."""
    output: nn.Linear
    is_real_R: Tensor | None
    """False for targets that count nothing, where a batch has a fixed shape."""
    compiled: bool

    def cross_entropy(self, smoothing: float) -> tuple[Tensor, Tensor]:
        """The label-smoothed loss and the nll, both summed, without all logits in memory at a time."""
        weight, bias = self.output.weight, self.output.bias
        return projected_cross_entropy(
            self.hidden_RD, weight, self.targets_R, smoothing, bias, self.is_real_R, self.compiled
        )

    def log_probs(self) -> Tensor:
        """(R, V) log-probabilities of the vocabulary, in float32."""
        return self.output(self.hidden_RD).float().log_softmax(dim=-1)

    def nll(self) -> Tensor:
        """(R,) negative log-likelihoods of the targets; 0 where a target counts nothing."""
        nll_R = -self.log_probs().gather(1, self.targets_R[:, None])[:, 0]
        return nll_R if self.is_real_R is None else nll_R * self.is_real_R


Forward = Callable[[Batch], Predictions]


class Loss:
    """The loss of a batch: a name of `train.loss`. Companions bring subclasses."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config

    def __call__(self, batch: Batch, forward: Forward) -> tuple[Tensor, Tensor]:
        """(loss, nll), both summed over the target tokens of the batch; only the loss has a gradient.

        `forward` computes the model, and may be called several times, also with a changed batch. The caller
        divides by the target tokens of the whole update.
        """
        raise NotImplementedError


class CrossEntropy(Loss):
    """Label-smoothed cross-entropy (paper, section 5.4)."""

    def __init__(self, smoothing: float) -> None:
        self._smoothing = smoothing

    def __call__(self, batch: Batch, forward: Forward) -> tuple[Tensor, Tensor]:
        return forward(batch).cross_entropy(self._smoothing)
