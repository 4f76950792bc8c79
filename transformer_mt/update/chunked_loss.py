"""Losses of many target tokens without all logits in memory at a time: label-smoothed cross-entropy with its
own backward pass, and other formulas by autograd, a chunk of tokens at a time.

Letters: R target tokens, C target tokens of a chunk, D width, V vocabulary.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.companion import shown
from transformer_mt.errors import InputError
from transformer_mt.model.fast_attention import can_be_read, uses_cpu_code
from transformer_mt.model.interface import NEVER

# Target tokens of a chunk on a CPU. More do not fit into its cache; with fewer, the weights are read too
# often.
TOKENS_ON_CPU = 256
# Elsewhere logits are computed in chunks of about this many numbers.
CHUNK = 2**27
_COMPILED_CHUNK = 2**28

# Factor on gradients of logits, which are at most 1, before they are rounded to float16.
_HALF_SCALE = 2.0**8
# For each weight, the gradients of this many tokens can be summed without exceeding float16's maximum of
# 65,504. If a chunk has more tokens, the decoder's outputs are first divided.
_HALF_TOKENS = 16


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Projection, loss and both their gradients, chunk by chunk: the logits of all tokens never exist
    together.

    The gradient of the logits is (softmax - target) times one scalar factor from the backward pass. So each
    chunk's gradients are computed in the forward pass, while its logits are still in the cache.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_RD: Tensor,
        weight_VD: Tensor,
        targets_R: Tensor,
        smoothing: float,
        bias_V: Tensor | None,
        is_real_R: Tensor | None,
        compiled: bool,
    ) -> Any:
        dtype = product_dtype(hidden_RD)
        V = len(weight_VD)
        size = TOKENS_ON_CPU if uses_cpu_code(hidden_RD) else max(1, CHUNK // V)
        if compiled:
            size = _equal_parts(len(targets_R), _COMPILED_CHUNK // V)
        is_real_R1 = None if is_real_R is None else is_real_R[:, None]
        weight = weight_VD.to(dtype)
        needs_gradient = any(ctx.needs_input_grad)
        hidden_gradient_RD = torch.empty_like(hidden_RD) if needs_gradient else None
        weight_gradient_VD = torch.zeros_like(weight_VD) if ctx.needs_input_grad[1] else None
        bias_gradient_V = torch.zeros_like(bias_V) if ctx.needs_input_grad[4] else None  # type: ignore[arg-type]
        # Tokens that are never written are left out of the mean over the vocabulary.
        mean_V = None if bias_V is None else (is_written := bias_V > NEVER / 2) / is_written.sum()
        share = smoothing / V if mean_V is None else smoothing * mean_V
        nll, target_logits = hidden_RD.new_zeros(2, dtype=torch.float32).unbind()
        chunk_loss = _compiled_chunk() if compiled else plain_chunk
        for start in range(0, len(targets_R), size):
            hidden_CD = hidden_RD[start : start + size].to(dtype)
            targets_C1 = targets_R[start : start + size, None]
            is_real_C1 = None if is_real_R1 is None else is_real_R1[start : start + size]
            logits_CV = hidden_CD @ weight.T
            if bias_V is not None:
                logits_CV = logits_CV + bias_V
            sums, gradient_CV = chunk_loss(
                logits_CV, targets_C1, is_real_C1, share, smoothing, needs_gradient
            )
            nll, target_logits = nll + sums[0], target_logits + sums[1]
            if hidden_gradient_RD is not None:
                if bias_gradient_V is not None:
                    bias_gradient_V += gradient_CV.sum(0, dtype=torch.float32)
                if dtype == torch.float16:  # its smallest numbers would be rounded to zero
                    gradient_CV.mul_(_HALF_SCALE)
                gradient_CV = gradient_CV.to(dtype)
                hidden_gradient_RD[start : start + size] = gradient_CV @ weight
                if weight_gradient_VD is not None:
                    divisor = max(1.0, len(hidden_CD) / _HALF_TOKENS) if dtype == torch.float16 else 1.0
                    product_VD = gradient_CV.T @ (hidden_CD if divisor == 1.0 else hidden_CD / divisor)
                    weight_gradient_VD.add_(product_VD, alpha=divisor)
        # For each token: mean over V of -log p = nll + target logit - mean logit. The mean logits, summed
        # over the tokens, equal the product of the summed outputs and the mean weight row.
        mean_row = weight_VD.mean(0, dtype=torch.float32) if mean_V is None else mean_V @ weight_VD.float()
        real_RD = hidden_RD if is_real_R1 is None else hidden_RD * is_real_R1
        mean_logits = (real_RD.sum(0, dtype=torch.float32) * mean_row).sum()
        if bias_V is not None and mean_V is not None:
            count = len(targets_R) if is_real_R1 is None else is_real_R1.sum()
            mean_logits = mean_logits + count * (mean_V * bias_V.float()).sum()
        for gradient in (hidden_gradient_RD, weight_gradient_VD):
            if dtype == torch.float16 and gradient is not None:
                gradient /= _HALF_SCALE
        loss = nll + smoothing * (target_logits - mean_logits)
        ctx.save_for_backward(hidden_gradient_RD, weight_gradient_VD, bias_gradient_V)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        hidden, weight, bias = (
            None if gradient is None else gradient * grads[0] for gradient in ctx.saved_tensors
        )
        return hidden, weight, None, None, bias, None, None


def plain_chunk(
    logits_CV: Tensor,
    targets_C1: Tensor,
    is_real_C1: Tensor | None,
    share: float | Tensor,
    smoothing: float,
    needs_gradient: bool,
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Returns ((nll, logits of the targets), gradient): the first two are summed, the last is the (C, V)
    gradient of the logits. `share`: the probability that smoothing gives each token of the vocabulary.
    """
    p_CV = logits_CV.softmax(dim=-1, dtype=torch.float32)
    logits_C1 = logits_CV.gather(1, targets_C1).float()
    # A separate log_softmax, with a second pass of exponentials, is not needed: log p of the target is
    # computed from p.
    p_C1 = p_CV.gather(1, targets_C1) if can_be_read(p_CV) else None
    if p_C1 is not None and bool((p_C1 >= torch.finfo(torch.float32).tiny).all()):
        nll_C1 = -p_C1.log()
    else:
        # Also correct for a target whose p is below float32's range: the likeliest token has
        # p = exp(its logit) / sum, which gives log sum.
        nll_C1 = logits_CV.amax(-1, keepdim=True).float() - p_CV.amax(-1, keepdim=True).log() - logits_C1
    if is_real_C1 is not None:
        nll_C1, logits_C1 = nll_C1 * is_real_C1, logits_C1 * is_real_C1
    sums = nll_C1.sum(), logits_C1.sum()
    if not needs_gradient:
        return sums, p_CV
    gradient_CV = p_CV.sub_(share)
    gradient_CV.scatter_add_(1, targets_C1, gradient_CV.new_full(targets_C1.shape, smoothing - 1.0))
    return sums, gradient_CV if is_real_C1 is None else gradient_CV.mul_(is_real_C1)


def fused_chunk(
    logits_CV: Tensor,
    targets_C1: Tensor,
    is_real_C1: Tensor | None,
    share: float | Tensor,
    smoothing: float,
    needs_gradient: bool,
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Same as `plain_chunk`, in a form that compiles to two passes over the logits. The gradient has the
    dtype of the logits.
    """
    logits_in_float = logits_CV.float()
    log_sum_C1 = logits_in_float.logsumexp(dim=-1, keepdim=True)
    logits_C1 = logits_CV.gather(1, targets_C1).float()
    nll_C1 = log_sum_C1 - logits_C1
    is_target_CV = torch.arange(logits_CV.size(1), device=logits_CV.device) == targets_C1
    gradient_CV = (logits_in_float - log_sum_C1).exp() - share - is_target_CV * (1.0 - smoothing)
    if is_real_C1 is not None:
        nll_C1, logits_C1, gradient_CV = (x * is_real_C1 for x in (nll_C1, logits_C1, gradient_CV))
    return (nll_C1.sum(), logits_C1.sum()), gradient_CV.to(logits_CV.dtype)


@cache
def _compiled_chunk() -> Callable[..., tuple[tuple[Tensor, Tensor], Tensor]]:
    return torch.compile(fused_chunk, dynamic=False, fullgraph=True)


def _equal_parts(count: int, most: int) -> int:
    """The largest divisor of `count` up to `most`: chunks of equal size need only one compilation."""
    parts = -(-count // max(1, most))
    return count // next(n for n in range(parts, count + 1) if count % n == 0)


def product_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype that autocast would multiply in."""
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else tensor.dtype


def projected_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    smoothing: float,
    bias: Tensor | None = None,
    is_real: Tensor | None = None,
    compiled: bool = False,
) -> tuple[Tensor, Tensor]:
    """Same as `loss.plain_cross_entropy`, in chunks. `is_real` (R,) is False for targets that do not count.
    `compiled` is meant for many calls with the same sizes.
    """
    compiled = compiled and product_dtype(hidden) != torch.float16
    loss, nll = _ProjectedCrossEntropy.apply(hidden, weight, targets, smoothing, bias, is_real, compiled)
    return loss, nll


Formula = Callable[..., Tensor]
"""(C,) ids of the targets, and for each pass the (C, V) log-probabilities, in float32 -> (C,) losses."""


class _SummedFormula(torch.autograd.Function):
    """Projection, loss and gradients, chunk by chunk. The forward pass already computes the gradients of a
    chunk, while its logits are in the cache. The loss is a sum, so the backward pass only scales gradients.
    """

    @staticmethod
    def forward(
        ctx: Any, formula: Formula, targets_R: Tensor, is_real_R: Tensor | None, *tensors: Tensor | None
    ) -> Any:
        hidden_RD = tensors[0]
        assert hidden_RD is not None
        dtype = product_dtype(hidden_RD)
        # Small gradients would be zero in float16.
        dtype = torch.float32 if dtype == torch.float16 else dtype
        needs = ctx.needs_input_grad[3:]
        cast = [None if tensor is None else tensor.detach().to(dtype) for tensor in tensors]
        sums = [torch.zeros_like(tensor) if need else None for tensor, need in zip(tensors, needs)]  # type: ignore[arg-type]
        vocabulary = len(cast[1])  # type: ignore[arg-type]
        size = TOKENS_ON_CPU if uses_cpu_code(hidden_RD) else max(1, CHUNK // (vocabulary * len(cast)))
        total, nll = hidden_RD.new_zeros(2, dtype=torch.float32).unbind()
        for start in range(0, len(targets_R), size):
            part = slice(start, start + size)
            with torch.enable_grad(), torch.autocast(hidden_RD.device.type, enabled=False):
                inputs = [
                    None
                    if tensor is None
                    else (tensor if i % 3 else tensor[part]).detach().requires_grad_(need)
                    for i, (tensor, need) in enumerate(zip(cast, needs))
                ]
                passes = zip(inputs[::3], inputs[1::3], inputs[2::3])
                log_probs = [F.linear(*one).float().log_softmax(dim=-1) for one in passes]  # type: ignore[arg-type]
                loss_C = formula(targets_R[part], *log_probs)
                _check(loss_C, targets_R[part], formula, any(needs))
                if is_real_R is not None:
                    loss_C = torch.where(is_real_R[part], loss_C, 0.0)
                loss = loss_C.sum()
            nll_C = -log_probs[0].detach().gather(1, targets_R[part, None])[:, 0]
            nll = nll + (nll_C if is_real_R is None else nll_C * is_real_R[part]).sum()
            total = total + loss.detach()
            wanted = {i: tensor for i, tensor in enumerate(inputs) if needs[i] and tensor is not None}
            leaves = list(wanted.values())
            gradients = torch.autograd.grad(loss, leaves, allow_unused=True) if leaves else ()
            for i, gradient in zip(wanted, gradients):
                if gradient is not None:
                    (sums[i] if i % 3 else sums[i][part]).add_(gradient)  # type: ignore[index, union-attr]
        ctx.save_for_backward(*sums)
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        gradients = (None if total is None else total * grads[0] for total in ctx.saved_tensors)
        return None, None, None, *gradients


def _check(loss_C: Any, targets_C: Tensor, formula: Formula, needs_gradient: bool) -> None:
    """InputError if the formula does not give one loss for each token. A mean or a matrix would be summed to
    a different loss, and training would not notice.
    """
    must = f"the formula {shown(formula)} must give a loss for each target token, here [{len(targets_C)}]"
    if not isinstance(loss_C, Tensor):
        raise InputError(f"{must}, but gives {type(loss_C).__name__}")
    if loss_C.shape != targets_C.shape:
        raise InputError(f"{must}, but gives {list(loss_C.shape)}; a mean or a sum is taken later")
    if needs_gradient and not loss_C.requires_grad:
        raise InputError(f"{must}, computed from the log-probabilities, but its result has no gradient")


def summed_formula(
    formula: Formula, targets: Tensor, is_real: Tensor | None, *tensors: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Returns (loss, nll): the formula's losses for (R,) targets and the negative log-likelihoods of the
    first pass, both summed; only the loss has a gradient. `tensors`: for each pass, the (R, D) outputs of
    the decoder, the (V, D) weight and the (V,) bias or None. `is_real` (R,) is False for targets that do not
    count.
    """
    loss, nll = _SummedFormula.apply(formula, targets, is_real, *tensors)
    return loss, nll
