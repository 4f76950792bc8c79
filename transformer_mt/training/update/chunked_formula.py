"""Losses of any formula in chunks of the target tokens, with their gradients: the logits of all tokens never
exist together (as in chunked_loss.py, which is faster for the usual loss).

Letters: R target tokens, D width, V vocabulary, C target tokens of a chunk.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.companion import shown
from transformer_mt.errors import InputError
from transformer_mt.model.kernels.cpu_code import uses_cpu_code
from transformer_mt.training.update.chunked_loss import CHUNK, TOKENS_ON_CPU, product_dtype

Formula = Callable[..., Tensor]
"""(C,) ids of the targets, and for each pass the (C, V) log-probabilities, in float32 -> (C,) losses."""


class _SummedFormula(torch.autograd.Function):
    """Projection, loss and gradients, chunk by chunk. The forward pass computes the gradients of a chunk,
    because its logits are then in the cache. The loss is a sum: the backward pass only scales them.
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
    """InputError if the formula gives something else than a loss for each token: summed up, a mean or a
    matrix would be another loss, and train without a word.
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
    """(loss, nll): the sums of what the formula gives for (R,) targets, and of the negative log-likelihoods
    by the first pass; only the loss has a gradient. `tensors`: for each pass its (R, D) outputs of the
    decoder, (V, D) weight and (V,) bias or None. `is_real` (R,) is False for targets that count nothing.
    """
    loss, nll = _SummedFormula.apply(formula, targets, is_real, *tensors)
    return loss, nll
