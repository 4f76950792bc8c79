"""One update of the weights. Its loss is the sum of all losses divided by the number of all target tokens;
batches are halved if they do not fit into memory.
"""

import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from subprocess import CalledProcessError

import torch
from torch import Tensor, nn

from transformer_mt.data.batches.batch import Batch
from transformer_mt.data.vocabulary.tokenizer import EOS
from transformer_mt.device import autocast, is_compiler_error, is_out_of_memory
from transformer_mt.errors import WorkError
from transformer_mt.messages import say
from transformer_mt.model.attention import AttentionRecorder, MultiHeadAttention
from transformer_mt.model.fast_attention import prefer_cudnn
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.masks import Packing
from transformer_mt.model.transformer import tokens_cut_off
from transformer_mt.ranks import Ranks
from transformer_mt.update.acceleration import CompiledLayers, GradientThreads, WeightCopies
from transformer_mt.update.loss import Loss, Predictions, check_result, guided_alignment_loss
from transformer_mt.update.sharding import full_tensor, needs_equal_passes, no_grad_sync


@dataclass(frozen=True)
class UpdateResult:
    """The result of one update."""

    loss: float
    """Smoothed loss, summed over the target tokens."""
    nll: float
    """Negative log-likelihood, summed over the target tokens."""
    num_tokens: int
    grad_norm: float
    """Length of the gradient before clipping."""
    skipped: bool
    """The gradient was not finite: nothing was changed."""
    layers: dict[str, list[float]] | None = None
    """The length of the gradient and the relative change of each layer (`LayerNorms`), if asked for."""


class PendingResult:
    """The result of an update that the device may still compute; `result` waits for it."""

    def __init__(
        self, values: Tensor, num_tokens: int, ranks: Ranks, layers: dict[str, Tensor] | None = None
    ) -> None:
        self._values, self._num_tokens, self._ranks, self._layers = values, num_tokens, ranks, layers

    def result(self) -> UpdateResult:
        """Loss and nll are summed over the ranks: a collective operation."""
        loss, nll, grad_norm, finite = self._values.tolist()
        loss, nll = self._ranks.sum(loss, nll)
        layers = None
        if self._layers is not None:
            layers = {name: values.tolist() for name, values in self._layers.items()}
        return UpdateResult(loss, nll, self._num_tokens, grad_norm, not finite, layers)


_LAYER, _PART = re.compile(r"(\w+)\.layers\.(\d+)\."), re.compile(r"model\.(\w+)")


class LayerNorms:
    """Measures each layer in one update at a time. Weights shared by several parts count for the first."""

    def __init__(self, objective: nn.Module) -> None:
        """`objective` has the model, and may be wrapped for several ranks."""
        self._layers: dict[str, list[nn.Parameter]] = {}
        self._before: list[list[Tensor]] = []
        self._gradients: list[Tensor] = []
        for name, parameter in objective.named_parameters():
            if parameter.requires_grad and (match := _LAYER.search(name) or _PART.search(name)):
                self._layers.setdefault(".".join(match.groups()), []).append(parameter)

    @property
    def names(self) -> list[str]:
        """The layers: `encoder.0`, `src_embedding`."""
        return list(self._layers)

    @torch.no_grad()
    def before_step(self) -> None:
        """Keep the weights and the lengths of the gradients, which are not clipped yet."""
        layers = self._layers.values()
        self._before = [[parameter.clone() for parameter in layer] for layer in layers]
        self._gradients = [_length([p.grad for p in layer if p.grad is not None]) for layer in layers]

    @torch.no_grad()
    def after_step(self) -> Tensor:
        """(layers, 2): for each layer, the length of its gradient, and the length of its change divided by
        the length of its weights.
        """
        changes = []
        for layer, before in zip(self._layers.values(), self._before):
            moved = [parameter - old for parameter, old in zip(layer, before)]
            changes.append(_length(moved) / _length(before))
        self._before = []
        return torch.stack([torch.stack(self._gradients), torch.stack(changes)], dim=1)


def _length(tensors: list[Tensor]) -> Tensor:
    """The Euclidean norm of all tensors together."""
    if not tensors:
        return torch.zeros(())
    norms = [full_tensor(torch.linalg.vector_norm(tensor.float())) for tensor in tensors]
    return torch.linalg.vector_norm(torch.stack(norms))


class Objective(nn.Module):
    """The training objective as a module: a batch -> (loss, nll), both summed over its real target tokens."""

    def __init__(
        self,
        model: TranslationModel,
        loss: Loss,
        compiled: bool = False,
        must_compile: bool = True,
        copies_weights: bool = False,
        alignment_weight: float = 0.0,
    ) -> None:
        """`compiled`: whether the layers and the loss of packed batches are compiled. Without `must_compile`,
        training goes on uncompiled if the compiler fails. With `copies_weights`, all weights of an update are
        cast at once (acceleration.py). `alignment_weight`: the factor of the guided-alignment loss, for
        batches that have links.
        """
        super().__init__()
        self.model, self._loss = model, loss
        self._must_compile, self._alignment_weight = must_compile, alignment_weight
        self._copies = WeightCopies(model.blocks) if copies_weights else None
        self._layers = CompiledLayers(model.blocks) if compiled else None
        # cuDNN makes a plan for each shape, so it is only for batches of one shape. Its dropout differs from
        # torch's, so it is not used with attention dropout.
        self._may_use_cudnn = not any(
            part.dropout for part in model.modules() if isinstance(part, MultiHeadAttention)
        )

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        is_guided = batch.links is not None and self._alignment_weight > 0
        recorder = AttentionRecorder(self.model.alignment_attention) if is_guided else None

        has_computed = False

        # A loss may also pass changed batches, but the links belong to the original batch only.
        def predictions(changed: Batch, cut_off: float = 0.0) -> Predictions:
            nonlocal has_computed
            has_computed = True
            with tokens_cut_off(cut_off, kept_below=EOS + 1):
                return self.predictions(changed, recorder if changed is batch else None)

        result = self._loss(batch, predictions)
        check_result(self._loss, result, has_computed)
        loss, nll = result
        if recorder is not None and batch.links is not None:
            weights_BTS = self.model.as_alignment(recorder.of(self.model.alignment_attention)[0])
            loss = loss + self._alignment_weight * guided_alignment_loss(weights_BTS, batch.links)
        return loss, nll

    def predictions(self, batch: Batch, recorder: AttentionRecorder | None = None) -> Predictions:
        """The outputs of the decoder at the target tokens."""
        kind = batch.src.device.type
        copies = self._copies if torch.is_autocast_enabled(kind) else None
        with copies.in_dtype(torch.get_autocast_dtype(kind)) if copies else nullcontext():
            if batch.packing is not None:
                hidden = self._packed_hidden(batch, batch.packing)
            else:
                hidden = self.model.hidden(batch.src, batch.src_mask, batch.tgt_in, recorder)
        hidden, targets, output = hidden.flatten(0, 1), batch.tgt_out.flatten(), self.model.output
        if batch.real is not None:
            hidden, targets = hidden.index_select(0, batch.real), targets.index_select(0, batch.real)
            return Predictions(hidden, targets, output, None, compiled=False)
        is_compiled = self._layers is not None
        return Predictions(hidden, targets, output, batch.is_real.flatten(), is_compiled)

    def _packed_hidden(self, batch: Batch, packing: Packing) -> Tensor:
        inputs = batch.src, batch.src_mask, batch.tgt_in, None, packing
        with prefer_cudnn() if self._may_use_cudnn and batch.src.is_cuda else nullcontext():
            if self._layers is not None:
                try:
                    with self._layers.in_use():
                        return self.model.hidden(*inputs)
                except (RuntimeError, CalledProcessError) as error:
                    self._without_compiling(error)
            return self.model.hidden(*inputs)

    def _without_compiling(self, error: Exception) -> None:
        """Stop compiling after a compiler error. Re-raises other errors, and all errors if `must_compile`."""
        if self._must_compile or not is_compiler_error(error):
            raise error
        reason = str(error).strip().splitlines()[0]
        say(f"note: training without torch.compile, which fails here: {reason}")
        self._layers = None


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
        micro_batch_tokens: int = 0,
        threads: int = 1,
        may_halve: bool = True,
        measures_layers: bool = False,
    ) -> None:
        """`objective` is an Objective, possibly wrapped by `wrap_distributed`. Batches of more than
        `micro_batch_tokens` positions are computed in parts, unless that is 0. If there are several CPU
        `threads` (`gradient_threads`), each computes a part of a batch. `may_halve`: whether batches are
        computed in smaller parts once one has not fit into memory. `measures_layers`: whether `update` may be
        asked to measure each layer.
        """
        self._objective, self.optimizer, self._ranks = objective, optimizer, ranks
        self._parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
        self._device, self.dtype = device, dtype
        self._max_grad_norm, self._may_halve = max_grad_norm, may_halve
        self.micro_batch_tokens = micro_batch_tokens
        self._layer_norms = LayerNorms(objective) if measures_layers else None
        self._threads = None
        if threads > 1 and ranks.size == 1:
            self._threads = GradientThreads(objective, self._parameters, dtype, threads)
        # Loss scaling for float16 only: its smallest gradients would underflow.
        self.scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16, init_scale=2.0**14)

    def update(self, batches: Sequence[Batch], learning_rate: float, by_layer: bool = False) -> PendingResult:
        """One update from all the batches of all the ranks: the same as from one batch of all their
        sentences. `by_layer`: also measure each layer.

        Does not wait for the device.
        """
        num_tokens = int(self._ranks.sum(sum(batch.num_tokens for batch in batches))[0])
        pieces = self._small_enough(batches)
        while (sums := self._gradients(pieces, num_tokens)) is None:
            pieces = self._halved(pieces)
        self._set_learning_rate(learning_rate)
        norms = self._layer_norms if by_layer else None
        values = self._finish(*sums, norms=norms)
        layers = None if norms is None else dict(zip(norms.names, norms.after_step()))
        return PendingResult(values, num_tokens, self._ranks, layers)

    def _set_learning_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def _finish(self, loss: Tensor, nll: Tensor, *, norms: LayerNorms | None = None) -> Tensor:
        """Clip the gradients, step and free them. Returns (loss, nll, length of the gradient, finite)."""
        self.scaler.unscale_(self.optimizer)
        if norms is not None:
            norms.before_step()
        limit = self._max_grad_norm or float("inf")
        grad_norm = full_tensor(torch.nn.utils.clip_grad_norm_(self._parameters, limit))
        # If the loss is not finite, the gradient is not either. The norm is the same on all ranks.
        finite = torch.isfinite(grad_norm)
        self._step_if(finite)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return torch.stack([loss, nll, grad_norm, finite])

    def _gradients(self, batches: Sequence[Batch], num_tokens: int) -> tuple[Tensor, Tensor] | None:
        """Accumulate the gradients of the loss over the batches. Returns (loss, nll), or None when out of
        memory.
        """
        loss_sum, nll_sum = torch.zeros(2, device=self._device).unbind()

        def scaled(loss: Tensor) -> Tensor:
            # DDP and FSDP average gradients over ranks, but our loss is a sum.
            return self.scaler.scale(loss * (self._ranks.size / num_tokens))

        try:
            for i, batch in enumerate(batches, start=1):
                batch = batch.to(self._device)
                if self._threads is not None:
                    loss, nll = self._threads.backward(batch, scaled)
                else:
                    with no_grad_sync(self._objective, last=i == len(batches)):
                        with autocast(self._device, self.dtype):
                            loss, nll = self._objective(batch)
                        scaled(loss).backward()
                loss_sum = loss_sum + loss.detach()
                nll_sum = nll_sum + nll
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            # The peers already wait for this rank's gradients: it cannot repeat the update
            if self._ranks.size > 1:
                most = self._largest(batches)
                raise WorkError(
                    f"not enough memory for a batch of {most:,} positions; run the same command with "
                    f"train.micro_batch_tokens={most // 2} to resume, with the same updates"
                ) from None
            return None
        return loss_sum, nll_sum

    def _halved(self, batches: Sequence[Batch]) -> list[Batch]:
        """The same sentences in batches of half as many positions, after one did not fit into memory."""
        if not self._may_halve:
            raise torch.OutOfMemoryError("the memory is not enough for the batch")
        self.optimizer.zero_grad(set_to_none=True)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        most = self._largest(batches)
        self.micro_batch_tokens = most // 2
        smaller = self._small_enough(batches)
        say(
            f"not enough memory for a batch of {most:,} positions: now using micro-batches of at most "
            f"{self.micro_batch_tokens:,}; the update keeps its tokens, train.batch_tokens can stay"
        )
        return smaller

    def _largest(self, batches: Sequence[Batch]) -> int:
        """Positions of the largest batch, for which the memory was not enough; WorkError if it cannot be
        halved.
        """
        largest = max(batches, key=lambda batch: batch.num_positions)
        if len(largest.src) == 1:
            one = "row" if largest.packing else "sentence"
            raise WorkError(
                f"the {self._device} lacks the memory for one {one} of {largest.num_positions:,} "
                "positions; train under another name with a lower data.max_length or a smaller model"
            )
        return largest.num_positions

    def _small_enough(self, batches: Sequence[Batch]) -> list[Batch]:
        pieces = list(batches)
        if self.micro_batch_tokens:
            pieces = [piece for batch in batches for piece in batch.split(self.micro_batch_tokens)]
        if needs_equal_passes(self._objective):
            pieces += [pieces[-1].idle()] * (max(self._ranks.gather(len(pieces))) - len(pieces))
        return pieces

    def _step_if(self, finite: Tensor) -> None:
        """Let the optimizer step unless the gradient is not finite."""
        if self.scaler.is_enabled():
            self.scaler.step(self.optimizer)
        elif self.optimizer.defaults.get("fused"):
            # The fused kernels read this on the device: no synchronisation.
            self.optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
            self.optimizer.step()
        elif finite:
            self.optimizer.step()
