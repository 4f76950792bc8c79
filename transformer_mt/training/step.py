"""One update of the weights. Its arithmetic: the sum of all losses over the number of all target tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_mt.data.batching import Batch
from transformer_mt.data.tokenizer import PAD
from transformer_mt.device import autocast
from transformer_mt.training.loss import cross_entropy


@dataclass(frozen=True)
class UpdateResult:
    """What one update did."""

    loss: float
    """Smoothed loss, summed over the target tokens."""
    nll: float
    """Negative log-likelihood, summed over the target tokens."""
    num_tokens: int
    grad_norm: float
    """Length of the gradient before clipping."""
    skipped: bool
    """The loss or the gradient was not finite: nothing was changed."""


class Updater:
    """Applies updates to a model: forward, backward, clip, step."""

    def __init__(
        self,
        model: nn.Module,
        forward: Callable[[Tensor, Tensor, Tensor], Tensor],
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        dtype: torch.dtype,
        label_smoothing: float,
        max_grad_norm: float,
    ) -> None:
        """`forward` is the model, or its compiled form."""
        self._parameters = list(model.parameters())
        self._forward, self._optimizer = forward, optimizer
        self._device, self.dtype = device, dtype
        self._label_smoothing, self._max_grad_norm = label_smoothing, max_grad_norm
        # float16 needs its small gradients lifted into its range; the others do not.
        self.scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16, init_scale=2.0**14)

    def update(self, batches: Sequence[Batch], learning_rate: float) -> UpdateResult:
        """One update from all the batches: the same as from one batch of all their sentences."""
        num_tokens = sum(batch.num_tokens for batch in batches)
        loss_sum = torch.zeros((), device=self._device)
        nll_sum = torch.zeros((), device=self._device)
        for batch in batches:
            batch = batch.to(self._device)
            with autocast(self._device, self.dtype):
                logits = self._forward(batch.src, batch.src_mask, batch.tgt_in)
            loss, nll = cross_entropy(logits, batch.tgt_out, self._label_smoothing, PAD)
            self.scaler.scale(loss / num_tokens).backward()
            loss_sum += loss.detach()
            nll_sum += nll
        self.scaler.unscale_(self._optimizer)
        limit = self._max_grad_norm or float("inf")
        grad_norm = torch.nn.utils.clip_grad_norm_(self._parameters, limit)
        finite = bool(torch.isfinite(loss_sum) & torch.isfinite(grad_norm))
        if finite:
            for group in self._optimizer.param_groups:
                group["lr"] = learning_rate
            self.scaler.step(self._optimizer)
        self.scaler.update()
        self._optimizer.zero_grad(set_to_none=True)
        return UpdateResult(loss_sum.item(), nll_sum.item(), num_tokens, grad_norm.item(), skipped=not finite)
