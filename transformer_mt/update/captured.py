"""Updates as CUDA graphs: the device repeats recorded kernels, and the host starts two graphs instead of a
thousand kernels.

A graph needs shapes that never change, like those of packed batches. Everything that does change is kept in
tensors: the batch, the learning rate and the number of tokens.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from transformer_mt.data.batches.batch import Batch
from transformer_mt.device import autocast, is_out_of_memory
from transformer_mt.messages import say
from transformer_mt.update.step import PendingResult, Updater

# Number of updates of a new size without a graph. They create the optimizer's state, compiled code and the
# plans of libraries, so capture needs no warm-up that would change weights or random state.
_USUAL = 2


class CapturedUpdater(Updater):
    """An Updater whose updates are graphs: one of forward and backward pass, one of clipping and step."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._rate, self._scale = torch.zeros(2, device=self._device).unbind()
        for group in self.optimizer.param_groups:
            group["lr"], group["capturable"] = self._rate, True
        # One stream for each, because the memory of a stream is its own.
        self._computing, self._copying = (torch.cuda.Stream(self._device) for _ in range(2))
        self._size: torch.Size | None = None
        self._usual_left, self._may_capture = _USUAL, True
        self._graphs: _Graphs | None = None

    def _set_learning_rate(self, rate: float) -> None:
        self._rate.fill_(rate)

    def update(self, batches: Sequence[Batch], learning_rate: float, by_layer: bool = False) -> PendingResult:
        assert not by_layer, "a graph measures no layers"
        pieces = self._small_enough(batches)
        sizes = {piece.src.shape for piece in pieces}
        if sizes != {self._size}:
            self._usual_left, self._size, self._graphs = _USUAL, pieces[0].src.shape, None
        if self._graphs is None and not self._usual_left and self._may_capture:
            self._graphs = self._capture(pieces[0])
        if self._graphs is None:
            self._usual_left = max(0, self._usual_left - 1)
            return self._usual(batches, learning_rate)
        return self._replay(self._graphs, pieces, learning_rate)

    def _usual(self, batches: Sequence[Batch], learning_rate: float) -> PendingResult:
        """Compute the update without a graph, on a side stream, as the capture does."""
        stream = torch.cuda.current_stream(self._device)
        self._computing.wait_stream(stream)
        with torch.cuda.stream(self._computing):
            result = super().update(batches, learning_rate)
        stream.wait_stream(self._computing)
        return result

    def _replay(self, graphs: "_Graphs", pieces: Sequence[Batch], learning_rate: float) -> PendingResult:
        num_tokens = sum(piece.num_tokens for piece in pieces)
        self._set_learning_rate(learning_rate)
        self._scale.fill_(1 / num_tokens)
        for i, piece in enumerate(pieces):
            self._load(graphs.batch, piece)
            graphs.gradients.replay()
            graphs.add(is_first=i == 0, is_last=i + 1 == len(pieces))
        graphs.step.replay()
        return PendingResult(graphs.values.clone(), num_tokens, self._ranks)

    def _load(self, target: Batch, batch: Batch) -> None:
        """Copy the batch to the device during the previous update, then into the graph's tensors."""
        stream = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._copying):
            tensors = batch.to(self._device).tensors
        stream.wait_stream(self._copying)
        for tensor in tensors:
            tensor.record_stream(stream)  # its memory is free only when the copy into the graph's is done
        torch._foreach_copy_(target.tensors, tensors)

    def _capture(self, batch: Batch) -> "_Graphs | None":
        """The captured graphs of an update. None, with a message, if an update cannot be captured."""
        # A failed capture leaves the generator's state unusable; this copy then replaces it.
        index = self._device.index or torch.cuda.current_device()
        generator = torch.cuda.default_generators[index]
        state = generator.clone_state()
        try:
            return _Graphs(self, batch.to(self._device))
        except RuntimeError as error:
            # The end of a broken capture raises an error of its own.
            cause = error.__context__ or error
            reason = str(cause).strip().splitlines()[0]
            out_of_memory = is_out_of_memory(error) or is_out_of_memory(cause)
        torch.cuda.synchronize(self._device)
        generator.graphsafe_set_state(state)
        self.optimizer.zero_grad(set_to_none=True)
        if out_of_memory:
            self._halved([batch])
        else:
            say(f"note: updates are not captured as CUDA graphs, so small models train slower: {reason}")
            self._may_capture = False
        return None


class _Graphs:
    """The graphs of updates of batches of one size, and the tensors that they read and write."""

    def __init__(self, updater: CapturedUpdater, batch: Batch) -> None:
        self.batch = batch
        parameters = updater._parameters
        self.gradients, self.step = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with _recording(self.gradients):
            with autocast(updater._device, updater.dtype):
                loss, nll = updater._objective(batch)
            (loss * updater._scale).backward()
            self._sums = torch.stack([loss.detach(), nll])
        self._gradients = [p.grad for p in parameters if p.grad is not None]
        self._totals = torch.zeros_like(self._sums)
        with _recording(self.step, self.gradients):
            self.values = updater._finish(*self._totals.unbind())
        self._kept: list[Tensor] = []

    def add(self, is_first: bool, is_last: bool) -> None:
        """Add the sums and the gradients of a batch to those of the batches before it."""
        if is_first:
            self._totals.copy_(self._sums)
        else:
            self._totals.add_(self._sums)
        if is_first and is_last:
            return
        if is_last:
            torch._foreach_add_(self._gradients, self._kept)
        elif is_first:
            self._kept = self._kept or [torch.empty_like(gradient) for gradient in self._gradients]
            torch._foreach_copy_(self._kept, self._gradients)
        else:
            torch._foreach_add_(self._kept, self._gradients)


def _recording(
    graph: torch.cuda.CUDAGraph, previous: torch.cuda.CUDAGraph | None = None
) -> AbstractContextManager[None]:
    """Record the GPU's work of this thread in `graph`; the thread that makes batches may use the GPU
    meanwhile. The graph `previous` is always replayed just before this one; both share memory.
    """
    pool = None if previous is None else previous.pool()
    return torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local")
