"""SimCut: a pass without some tokens must predict as the whole one does (Gao et al. 2022, equation 6)."""

from functools import partial

from pydantic import Field
from torch import Tensor

from transformer_mt.data.batches.batch import Batch
from transformer_mt.settings.section import Probability, Section
from transformer_mt.update.loss import Forward, Loss, Predictions


class SimCut(Loss):
    """Smoothed cross-entropy plus `weight` times KL(p, q): p of the whole sentences, q of those with tokens
    cut off on both sides. The gradient goes through both, as the paper found to be better.
    """

    class Settings(Section):
        """Keys of simcut."""

        weight: float = Field(3.0, ge=0.0)
        """The paper's alpha."""
        cut_off: Probability = 0.05
        """Share of the tokens that are cut off."""

    settings: Settings

    def __call__(self, batch: Batch, forward: Forward) -> tuple[Tensor, Tensor]:
        whole = forward(batch)
        if not self.settings.weight:
            return whole.cross_entropy(self.config.label_smoothing)
        cut = forward(batch, cut_off=self.settings.cut_off)
        return whole.summed(partial(self._of_tokens, whole), cut)

    def _of_tokens(self, whole: Predictions, targets_C: Tensor, log_p_CV: Tensor, log_q_CV: Tensor) -> Tensor:
        nll_C = whole.smoothed_nll(targets_C, log_p_CV, self.config.label_smoothing)
        divergence_C = (log_p_CV.exp() * (log_p_CV - log_q_CV)).sum(dim=-1)
        return nll_C + self.settings.weight * divergence_C
