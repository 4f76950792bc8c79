"""What an update costs on any device: its arithmetic and its memory, without computing it.

The code of the trainer runs on tensors that have shapes but no data (torch's FakeTensorMode), and what
it would do is counted. So mechanisms, optimizers and checkpointed activations need no formulas of their own.
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
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from transformer_mt.config import Config
from transformer_mt.data.batches.batching import Batch
from transformer_mt.errors import InputError
from transformer_mt.model.build import build_model
from transformer_mt.model.kernels.cpu_code import without_cpu_code
from transformer_mt.training.update.adaptation import adapt
from transformer_mt.training.update.build import build_trial_updater
from transformer_mt.training.update.optimizer import CombinedOptimizer, build_optimizer
from transformer_mt.training.update.orthogonal import orthogonal_flops

_CPU = torch.device("cpu")

# Torch has no formulas for its fused attention on a CPU, which is counted here also for a GPU.
_ATTENTION_FLOPS = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda *shapes, **_: sdpa_flop_count(
        *shapes[:3]
    ),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda *shapes, **_: sdpa_backward_flop_count(*shapes[:4])
    ),
}


@dataclass(frozen=True)
class UpdateCost:
    """What one update costs a device that trains alone."""

    parameters: int
    trained_parameters: int
    """Parameters with gradients: not those of frozen parts."""
    layer_parameters: int
    """Parameters of all layers."""
    largest_layer: int
    """Parameters of the largest one."""
    flops: float
    """Operations of the matrix products: two for each multiplication with its addition."""
    pass_operations: int
    """Calls of torch's operations that compute something, in one forward and backward pass with clipping:
    starting one takes some microseconds.
    """
    step_operations: int
    """Operations of the optimizer, once an update."""
    state_bytes: int
    """Weights, gradients and the optimizer's moments."""
    peak_bytes: int
    """The most at a time, with the activations and what lies between."""


def update_cost(
    config: Config, vocab_size: int, batch: Batch, dtype: torch.dtype, on_gpu: bool = False
) -> UpdateCost:
    """The cost of an update of `config` on this batch, in the precision of `dtype`; `on_gpu` computes as a
    GPU does. InputError for recurrent networks, whose operations depend on numbers.
    """
    if config.model.kind != "transformer":
        raise InputError(f"model.kind must be transformer to plan a training, but is {config.model.kind}")
    with without_cpu_code() if on_gpu else nullcontext(), FakeTensorMode(allow_non_fake_inputs=True):
        model = build_model(
            config.model, vocab_size, vocab_size, config.tokenizer.shared, config.data.max_length
        )
        adapt(model, config.train)
        updater = build_trial_updater(config, model, _CPU, dtype, threads=1)
        weights = list(model.parameters())
        trained = [weight for weight in weights if weight.requires_grad]
        with _Memory(weights) as memory:
            gradients = sum(weight.numel() * weight.element_size() for weight in trained)
            for weight in trained:
                weight.grad = torch.empty_like(weight)
            updater.optimizer.step()  # makes the moments
            updater.optimizer.zero_grad(set_to_none=True)
            state = memory.bytes + gradients
            memory.peak, before = memory.bytes, memory.operations
            at_step: list[int] = []
            updater.optimizer.register_step_pre_hook(lambda *_: at_step.append(memory.operations))
            with FlopCounterMode(display=False, custom_mapping=_ATTENTION_FLOPS) as counter:
                updater.update([batch], 1e-6)
    layers = [_count(list(block.parameters())) for block in model.blocks]
    return UpdateCost(
        parameters=_count(weights),
        trained_parameters=_count(trained),
        layer_parameters=sum(layers),
        largest_layer=max(layers),
        flops=float(counter.get_total_flops()),
        pass_operations=at_step[0] - before,
        step_operations=memory.operations - at_step[0],
        state_bytes=state,
        peak_bytes=memory.peak,
    )


def muon_work(config: Config, vocab_size: int) -> tuple[int, float]:
    """The elements of the matrices that Muon updates, and the arithmetic of its steps; (0, 0.0) without
    it.
    """
    if config.train.optimizer != "muon" or config.train.lora.rank:
        return 0, 0.0
    with FakeTensorMode():
        model = build_model(
            config.model, vocab_size, vocab_size, config.tokenizer.shared, config.data.max_length
        )
        adapt(model, config.train)
        optimizer = build_optimizer(model, config.train)
        if not isinstance(optimizer, CombinedOptimizer):  # no layer is trained
            return 0, 0.0
        sides = [sorted(matrix.shape) for matrix in optimizer.param_groups[0]["params"]]
    numbers = sum(a * b for a, b in sides)
    return numbers, sum(orthogonal_flops(a, b) for a, b in sides)


def _count(weights: Sequence[Tensor]) -> int:
    return sum(weight.numel() for weight in weights)


class _Memory(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive, and the operations."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """`tensors` exist already."""
        super().__init__()
        self.bytes, self.peak, self.operations = 0, 0, 0
        self._sizes: dict[int, int] = {}
        for tensor in tensors:
            self._add(tensor)

    def __torch_dispatch__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [self._add(leaf) for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.operations += any(made) or func.__name__.split(".")[0].endswith("_")  # not for views
        return result

    def _add(self, tensor: Tensor) -> bool:
        """Whether the tensor has new memory."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._sizes:  # a view, or changed in place
            return False
        self._sizes[key] = storage.nbytes()
        self.bytes += storage.nbytes()
        self.peak = max(self.peak, self.bytes)
        weakref.finalize(storage, self._remove, key)
        return True

    def _remove(self, key: int) -> None:
        self.bytes -= self._sizes.pop(key, 0)
