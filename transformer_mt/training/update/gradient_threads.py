"""The gradients of a batch by several threads of a CPU, each from a part of its sentences.

Torch's own threads share out each operation and wait for one another after it: when another program takes a
core for a moment, all of them wait. Here they meet once in an update.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import torch
from torch import Tensor, nn

from transformer_mt.config import Config
from transformer_mt.data.batches.batch import Batch
from transformer_mt.device import autocast
from transformer_mt.model.kernels.dropout import dropout_generator

# Positions of the smallest part: with fewer, starting the operations takes longer than computing them.
_MIN_POSITIONS = 256

Gradients = tuple[Tensor | None, ...]


def gradient_threads(config: Config, device: torch.device, dtype: torch.dtype) -> int:
    """Number of threads that may compute parts of a batch: 1 unless dropout is the only random operation and
    its masks are ours, as each part needs a generator of its own. Also 1 in float16: GradScaler is not
    thread-safe.
    """
    model, train = config.model, config.train
    only_dropout = model.kind == "transformer" and not model.attention.hard
    only_ours = not model.attention_dropout or dtype == torch.bfloat16  # the fused kernel has its own masks
    plain = train.compile is not True and not train.activation_checkpointing
    if device.type == "cpu" and dtype != torch.float16 and only_dropout and only_ours and plain:
        return torch.get_num_threads()
    return 1


class GradientThreads:
    """Computes gradients of an objective. Their sums have a fixed order: with as many threads, the same
    batches give the same bits.
    """

    def __init__(
        self, objective: nn.Module, parameters: Sequence[nn.Parameter], dtype: torch.dtype, threads: int
    ) -> None:
        self._objective, self._parameters, self._dtype = objective, list(parameters), dtype
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "gradients")

    def backward(self, batch: Batch, scale: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Add the gradients of the scaled loss to those of the parameters. Returns (loss, nll)."""
        parts = batch.parts(max(1, min(self._threads, batch.num_positions // _MIN_POSITIONS)))
        seeds = torch.randint(2**62, (len(parts),)).tolist() if len(parts) > 1 else [None]
        inner = max(1, self._threads // len(parts))

        def compute(part: Batch, seed: int | None) -> tuple[Tensor, Tensor, Gradients]:
            torch.set_num_threads(inner)
            generator = None if seed is None else torch.Generator().manual_seed(seed)
            # torch has one cache of cast weights for all threads, which the first that is done empties: a
            # weight that another one uses twice would be cast once or twice, as it happens.
            with (
                autocast(torch.device("cpu"), self._dtype, caches_weights=False),
                dropout_generator(generator),
            ):
                loss, nll = self._objective(part)
            gradients = torch.autograd.grad(scale(loss), self._parameters, allow_unused=True)
            return loss.detach(), nll, gradients

        if len(parts) == 1:
            loss, nll, gradients = compute(parts[0], None)
            self._add(gradients)
            return loss, nll
        running = [self._pool.submit(compute, part, seed) for part, seed in zip(parts, seeds)]
        sums: list[tuple[Tensor, Tensor]] = []
        try:
            while running:
                loss, nll, gradients = running.pop(0).result()
                self._add(gradients)
                sums.append((loss, nll))
        finally:
            wait(running)  # after an error, the memory of the other parts must be free for another attempt
            torch.set_num_threads(self._threads)  # in a worker it also sets the number of later threads
        losses, nlls = zip(*sums)
        return torch.stack(losses).sum(), torch.stack(nlls).sum()

    def _add(self, gradients: Gradients) -> None:
        sums, more = [], []
        for parameter, gradient in zip(self._parameters, gradients):
            if gradient is None:
                continue
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                sums.append(parameter.grad)
                more.append(gradient)
        if sums:
            torch._foreach_add_(sums, more)
