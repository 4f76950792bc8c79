"""The memory of an update on any device, without computing it.

The code of the trainer runs on tensors that have shapes but no data (torch's FakeTensorMode), and the bytes
that it would hold are counted. So mechanisms, optimizers and checkpointed activations need no formulas of
their own.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from transformer_mt.config import Config
from transformer_mt.data.batches.batch import Batch
from transformer_mt.errors import InputError
from transformer_mt.model.build_model import build_model
from transformer_mt.model.kernels.fast_attention import without_cpu_code
from transformer_mt.update.adaptation import adapt
from transformer_mt.update.build_updater import build_trial_updater


@dataclass(frozen=True)
class UpdateMemory:
    """The memory of one update on a device that trains alone."""

    parameters: int
    state_bytes: int
    """Weights, gradients and the optimizer's moments."""
    peak_bytes: int
    """The most at a time, with the activations and what lies between."""


def update_memory(
    config: Config, vocab_size: int, batch: Batch, dtype: torch.dtype, on_gpu: bool = False
) -> UpdateMemory:
    """The memory of an update of `config` on this batch, in the precision of `dtype`; `on_gpu` computes as a
    GPU does. InputError for recurrent networks, whose operations depend on numbers.
    """
    if config.model.kind != "transformer":
        raise InputError(f"model.kind must be transformer to plan a training, but is {config.model.kind}")
    with without_cpu_code() if on_gpu else nullcontext(), FakeTensorMode(allow_non_fake_inputs=True):
        model = build_model(
            config.model, vocab_size, vocab_size, config.tokenizer.shared, config.data.max_length
        )
        adapt(model, config.train)
        updater = build_trial_updater(config, model, torch.device("cpu"), dtype, threads=1)
        weights = list(model.parameters())
        trained = [weight for weight in weights if weight.requires_grad]
        with _Memory(weights) as memory:
            gradients = sum(weight.numel() * weight.element_size() for weight in trained)
            for weight in trained:
                weight.grad = torch.empty_like(weight)
            updater.optimizer.step()  # makes the moments
            updater.optimizer.zero_grad(set_to_none=True)
            state = memory.bytes + gradients
            memory.peak = memory.bytes
            updater.update([batch], 1e-6)
    return UpdateMemory(sum(weight.numel() for weight in weights), state, memory.peak)


class _Memory(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """`tensors` exist already."""
        super().__init__()
        self.bytes, self.peak = 0, 0
        self._sizes: dict[int, int] = {}
        for tensor in tensors:
            self._add(tensor)

    def __torch_dispatch__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._add(leaf)
        return result

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._sizes:  # a view, or changed in place
            return
        self._sizes[key] = storage.nbytes()
        self.bytes += storage.nbytes()
        self.peak = max(self.peak, self.bytes)
        weakref.finalize(storage, self._remove, key)

    def _remove(self, key: int) -> None:
        self.bytes -= self._sizes.pop(key, 0)
