"""One update of the weights. Its arithmetic: the sum of all losses over the number of all target tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_mt.checkpoint import whole
from transformer_mt.data.batching import Batch
from transformer_mt.device import autocast, is_out_of_memory
from transformer_mt.errors import WorkError
from transformer_mt.model.interface import TranslationModel
from transformer_mt.training.distributed import Ranks, gradients_stay, moves_in_step
from transformer_mt.training.loss import projected_cross_entropy


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
    """The gradient was not finite: nothing was changed."""


class Pending:
    """An update whose numbers may still be on their way; `result` waits for them."""

    def __init__(self, values: Tensor, num_tokens: int, ranks: Ranks) -> None:
        self._values, self._num_tokens, self._ranks = values, num_tokens, ranks

    def result(self) -> UpdateResult:
        """Loss and nll are summed over the ranks; all of them must ask."""
        loss, nll, grad_norm, finite = self._values.tolist()
        loss, nll = self._ranks.sum(loss, nll)
        return UpdateResult(loss, nll, self._num_tokens, grad_norm, skipped=not finite)


class Objective(nn.Module):
    """What is minimised, as a module: a batch -> (loss, nll), both summed over its real target tokens."""

    def __init__(self, model: TranslationModel, label_smoothing: float, compiled: bool = False) -> None:
        super().__init__()
        self.model, self.label_smoothing = model, label_smoothing
        self._hidden = torch.compile(model.hidden, dynamic=True) if compiled and model.compiles else model.hidden

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        hidden = self._hidden(batch.src, batch.src_mask, batch.tgt_in).flatten(0, 1).index_select(0, batch.real)
        targets = batch.tgt_out.flatten().index_select(0, batch.real)
        return projected_cross_entropy(hidden, self.model.output.weight, targets, self.label_smoothing)


class Updater:
    """Applies updates to a model: forward, backward, clip, step."""

    def __init__(
        self,
        objective: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        dtype: torch.dtype,
        max_grad_norm: float,
        ranks: Ranks,
        say: Callable[[str], None],
        micro_batch_tokens: int = 0,
    ) -> None:
        """`objective` is an Objective, as it is or spread over ranks; batches of more than `micro_batch_tokens` positions
        are computed in parts, unless it is 0.
        """
        self._objective, self._optimizer, self._ranks, self._say = objective, optimizer, ranks, say
        self._parameters = list(objective.parameters())
        self._device, self.dtype = device, dtype
        self._max_grad_norm = max_grad_norm
        self.micro_batch_tokens = micro_batch_tokens
        # float16 needs its small gradients lifted into its range; the others do not.
        self.scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16, init_scale=2.0**14)

    def update(self, batches: Sequence[Batch], learning_rate: float) -> Pending:
        """One update from all the batches of all the ranks: the same as from one batch of all their sentences.

        Nothing here waits for the device.
        """
        num_tokens = int(self._ranks.sum(sum(batch.num_tokens for batch in batches))[0])
        pieces = self._small_enough(batches)
        while (sums := self._gradients(pieces, num_tokens)) is None:
            pieces = self._halved(pieces)
        self.scaler.unscale_(self._optimizer)
        limit = self._max_grad_norm or float("inf")
        grad_norm = whole(torch.nn.utils.clip_grad_norm_(self._parameters, limit))
        finite = torch.isfinite(grad_norm)  # a loss that is not has no gradient that is; and all ranks see the same
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._step_if(finite)
        self.scaler.update()
        self._optimizer.zero_grad(set_to_none=True)
        return Pending(torch.stack([*sums, grad_norm, finite]), num_tokens, self._ranks)

    def _gradients(self, batches: Sequence[Batch], num_tokens: int) -> tuple[Tensor, Tensor] | None:
        """Add up the gradients of the batches' loss; gives back (loss, nll), or None if the memory is not enough."""
        loss_sum, nll_sum = torch.zeros(2, device=self._device).unbind()
        try:
            for i, batch in enumerate(batches, start=1):
                batch = batch.to(self._device)
                with gradients_stay(self._objective, last=i == len(batches)):
                    with autocast(self._device, self.dtype):
                        loss, nll = self._objective(batch)
                    # Over ranks, gradients are averaged, but the loss is a sum.
                    self.scaler.scale(loss * (self._ranks.size / num_tokens)).backward()
                loss_sum = loss_sum + loss.detach()
                nll_sum = nll_sum + nll
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if self._ranks.size > 1:  # the others already wait for this one's gradients: it cannot begin anew
                most = self._largest(batches)
                raise WorkError(
                    f"not enough memory for a batch of {most:,} positions; run the same command with "
                    f"train.micro_batch_tokens={most // 2} to go on, with the same updates"
                ) from None
            return None
        return loss_sum, nll_sum

    def _halved(self, batches: Sequence[Batch]) -> list[Batch]:
        """After the memory was not enough: the same sentences in batches of half the positions."""
        self._optimizer.zero_grad(set_to_none=True)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        most = self._largest(batches)
        self.micro_batch_tokens = most // 2
        smaller = self._small_enough(batches)
        self._say(
            f"not enough memory for a batch of {most:,} positions: from here on in micro-batches of at most "
            f"{self.micro_batch_tokens:,}; the update is the same, train.batch_tokens need not change"
        )
        return smaller

    def _largest(self, batches: Sequence[Batch]) -> int:
        """Positions of the largest batch, for which the memory was not enough; WorkError if it cannot be halved."""
        largest = max(batches, key=lambda batch: batch.num_positions)
        if len(largest.src) == 1:
            raise WorkError(
                f"the {self._device} has not enough memory for one sentence of {largest.num_positions:,} positions; "
                "train under another name with a lower data.max_length or a smaller model"
            )
        return largest.num_positions

    def _small_enough(self, batches: Sequence[Batch]) -> list[Batch]:
        if not self.micro_batch_tokens:
            return list(batches)
        pieces = [piece for batch in batches for piece in batch.split(self.micro_batch_tokens)]
        if moves_in_step(self._objective):
            pieces += [pieces[-1].idle()] * (max(self._ranks.gather(len(pieces))) - len(pieces))
        return pieces

    def _step_if(self, finite: Tensor) -> None:
        """Let the optimizer step unless the gradient is not finite."""
        if self.scaler.is_enabled():
            self.scaler.step(self._optimizer)
        elif self._optimizer.defaults.get("fused"):
            # The fused kernels look at this on the device, so that nobody waits for the answer.
            self._optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
            self._optimizer.step()
        elif finite:
            self._optimizer.step()
