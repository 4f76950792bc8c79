"""Cross-entropy with label smoothing: a sum over the target tokens, never a mean.

Letters: R positions, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class _SmoothedCrossEntropy(torch.autograd.Function):
    """The loss and its gradient softmax(logits) - target in two passes over the logits, keeping nothing as large beside them.

    `F.cross_entropy(label_smoothing=...)`, its oracle in the tests, keeps the log-probabilities and walks them more often.
    """

    @staticmethod
    def forward(ctx: Any, logits_RV: Tensor, targets_R: Tensor, smoothing: float, pad_id: int) -> tuple[Tensor, Tensor]:
        real_R = targets_R != pad_id
        log_sum_R = torch.logsumexp(logits_RV.float(), dim=-1)
        nll_R = log_sum_R - logits_RV.gather(1, targets_R[:, None])[:, 0].float()
        uniform_R = log_sum_R - logits_RV.mean(dim=-1, dtype=torch.float32)
        loss_R = (1 - smoothing) * nll_R + smoothing * uniform_R
        ctx.save_for_backward(logits_RV, log_sum_R, targets_R, real_R)
        ctx.smoothing = smoothing
        nll = nll_R[real_R].sum()
        ctx.mark_non_differentiable(nll)
        return loss_R[real_R].sum(), nll

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        logits_RV, log_sum_R, targets_R, real_R = ctx.saved_tensors
        gradient_RV = (logits_RV.float() - log_sum_R[:, None]).exp_()
        gradient_RV -= ctx.smoothing / logits_RV.size(1)
        gradient_RV.scatter_add_(1, targets_R[:, None], gradient_RV.new_full((len(targets_R), 1), ctx.smoothing - 1.0))
        gradient_RV *= (grads[0] * real_R)[:, None]
        return gradient_RV.to(logits_RV.dtype), None, None, None


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float, pad_id: int) -> tuple[Tensor, Tensor]:
    """(B, T, V) logits and (B, T) ids -> (loss, nll), both summed in float32 over the targets that are not padding.

    loss = (1 - e) nll + e * mean over the vocabulary of -log p (paper, section 5.4, e = `smoothing`); only it has a gradient.
    """
    loss, nll = _SmoothedCrossEntropy.apply(logits.flatten(0, 1), targets.flatten(), smoothing, pad_id)
    return loss, nll


def plain_cross_entropy(logits: Tensor, targets: Tensor, smoothing: float, pad_id: int) -> tuple[Tensor, Tensor]:
    """The same by torch's own function, the oracle of `cross_entropy`."""
    flat, ids = logits.flatten(0, 1).float(), targets.flatten()
    loss = F.cross_entropy(flat, ids, ignore_index=pad_id, label_smoothing=smoothing, reduction="sum")
    return loss, F.cross_entropy(flat, ids, ignore_index=pad_id, reduction="sum").detach()
