"""R-Drop: two passes with their own dropout must predict alike (Liang et al. 2021, equations 2 to 4)."""

from functools import partial

from pydantic import Field
from torch import Tensor

from transformer_mt.data.batches.batch import Batch
from transformer_mt.settings.section import Section
from transformer_mt.update.loss import Forward, Loss, Predictions


class RDrop(Loss):
    """Half of the paper's loss, so that it has the size of that of one pass: the mean of the smoothed
    cross-entropies of both passes, plus half of `weight` times the mean of both divergences.
    """

    class Settings(Section):
        """Keys of r_drop."""

        weight: float = Field(5.0, ge=0.0)
        """The paper's alpha."""

    settings: Settings

    def __call__(self, batch: Batch, forward: Forward) -> tuple[Tensor, Tensor]:
        first = forward(batch)
        if not self.settings.weight:
            return first.cross_entropy(self.config.label_smoothing)
        return first.summed(partial(self._of_tokens, first), forward(batch))

    def _of_tokens(
        self, predictions: Predictions, targets_C: Tensor, log_p_CV: Tensor, log_q_CV: Tensor
    ) -> Tensor:
        smoothing = self.config.label_smoothing
        nll_C = sum(predictions.smoothed_nll(targets_C, log_CV, smoothing) for log_CV in (log_p_CV, log_q_CV))
        # KL(p, q) + KL(q, p)
        divergence_C = ((log_p_CV.exp() - log_q_CV.exp()) * (log_p_CV - log_q_CV)).sum(dim=-1)
        return nll_C / 2 + self.settings.weight / 4 * divergence_C
