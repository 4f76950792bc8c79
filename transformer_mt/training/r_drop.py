"""R-Drop (Liang et al. 2021): a sentence goes through the model twice, and the two dropouts should agree.

Letters: R target tokens, D width, V vocabulary, C target tokens of a chunk.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.training.loss import product_dtype

# Many small passes go over a chunk's logits: so many numbers stay in a core's own cache.
_CHUNK = {"cpu": 2**20}
_CHUNK_ELSEWHERE = 2**26


class _ConsistentCrossEntropy(torch.autograd.Function):
    """As in loss.py, chunk by chunk with the gradients made at once, for two outputs of each token."""

    @staticmethod
    def forward(
        ctx: Any,
        first_RD: Tensor,
        second_RD: Tensor,
        weight_VD: Tensor,
        targets_R: Tensor,
        smoothing: float,
        alpha: float,
    ) -> Any:
        dtype = product_dtype(first_RD)
        V = len(weight_VD)
        size = max(1, _CHUNK.get(first_RD.device.type, _CHUNK_ELSEWHERE) // V)
        weight = weight_VD.to(dtype)
        gradients = [torch.empty_like(first_RD), torch.empty_like(second_RD), torch.zeros_like(weight_VD)]
        loss, nll = first_RD.new_zeros(2, dtype=torch.float32).unbind()
        for start in range(0, len(targets_R), size):
            here = slice(start, start + size)
            targets_C1 = targets_R[here, None]
            hidden = [outputs[here].to(dtype) for outputs in (first_RD, second_RD)]
            log_p = [(each @ weight.T).log_softmax(dim=-1, dtype=torch.float32) for each in hidden]
            p = [each.exp() for each in log_p]
            for each in log_p:
                chunk_nll = -each.gather(1, targets_C1).sum() / 2
                nll = nll + chunk_nll
                loss = loss + (1 - smoothing) * chunk_nll - smoothing * each.mean(dim=-1).sum() / 2
            difference_CV = log_p[0].sub_(log_p[1])
            for i, sign in ((0, 1.0), (1, -1.0)):
                kl_C1 = sign * torch.linalg.vecdot(p[i], difference_CV)[:, None]  # KL(p_i || the other)
                loss = loss + alpha / 4 * kl_C1.sum()
                # d KL(p || q) = p (log p - log q - KL), d KL(q || p) = p - q, with respect to the logits of p
                gradient_CV = torch.add(0.5 + alpha / 4 * (1 - kl_C1), difference_CV, alpha=sign * alpha / 4).mul_(p[i])
                gradient_CV.sub_(p[1 - i], alpha=alpha / 4).sub_(smoothing / V / 2)
                gradient_CV.scatter_add_(1, targets_C1, gradient_CV.new_full(targets_C1.shape, (smoothing - 1.0) / 2))
                gradient_CV = gradient_CV.to(dtype)
                gradients[i][here] = gradient_CV @ weight
                gradients[2] += gradient_CV.T @ hidden[i]
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return *(gradient * grads[0] for gradient in ctx.saved_tensors), None, None, None


def consistent_cross_entropy(
    first: Tensor, second: Tensor, weight: Tensor, targets: Tensor, smoothing: float, alpha: float
) -> tuple[Tensor, Tensor]:
    """(R, D) outputs of the decoder under two dropouts, (V, D) weight, (R,) ids -> (loss, nll), both summed in float32.

    loss = the mean of both cross-entropies + alpha / 2 * the mean of KL(p1 || p2) and KL(p2 || p1): half of the paper's
    equation 4, which adds the cross-entropies up, so that losses with and without R-Drop are of one size.
    """
    loss, nll = _ConsistentCrossEntropy.apply(first, second, weight, targets, smoothing, alpha)
    return loss, nll


def plain_consistent_cross_entropy(
    first: Tensor, second: Tensor, weight: Tensor, targets: Tensor, smoothing: float, alpha: float
) -> tuple[Tensor, Tensor]:
    """The same by torch's own functions: slow and plain on purpose, what the chunks are tested against."""
    p1, p2 = (F.linear(outputs, weight).float().log_softmax(dim=-1) for outputs in (first, second))
    options: Any = {"reduction": "sum", "log_target": True}
    both = F.kl_div(p2, p1, **options) + F.kl_div(p1, p2, **options)
    cross = [F.cross_entropy(p, targets, reduction="sum", label_smoothing=smoothing) for p in (p1, p2)]
    nll = [F.nll_loss(p.detach(), targets, reduction="sum") for p in (p1, p2)]
    return sum(cross) / 2 + alpha / 4 * both, sum(nll) / 2  # type: ignore[return-value]
