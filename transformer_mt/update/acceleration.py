"""What makes an update faster, or smaller, and gives the same result: compilation, threads that compute parts
of a batch, copies of weights in bfloat16, activations that are computed again.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transformer_mt.config import Config
from transformer_mt.data.batches.batch import Batch
from transformer_mt.device import autocast
from transformer_mt.files import cache_root
from transformer_mt.model.fast_attention import dropout_generator

# Seconds for compiling the layers and the loss, and for loading them from the compiler's cache.
_COMPILING, _LOADING = 20.0, 8.0
# Seconds that compiled code saves on an H200: in each update, and for each number that a layer outputs.
_SAVED_PER_UPDATE, _SAVED_PER_NUMBER = 3e-3, 1.3e-10


def is_compiled(config: Config, device: torch.device, updates: int) -> bool:
    """True if the remaining updates use torch.compile. With `auto` they do on a GPU, if compiling takes less
    time than it saves.
    """
    train, model = config.train, config.model
    if train.packed is not True or train.activation_checkpointing:
        return False
    if train.compile != "auto":
        return train.compile
    if device.type != "cuda":
        return False
    positions = train.update_tokens or int(train.batch_tokens) * train.accumulate
    numbers = positions * model.d_model * (model.num_encoder_layers + model.num_decoder_layers)
    seconds = _LOADING if _mark(config).exists() else _COMPILING
    return updates * (_SAVED_PER_UPDATE + _SAVED_PER_NUMBER * numbers) > seconds


def use_compiler_cache(config: Config) -> None:
    """Let the compiler keep its code in our cache, and note for later trainings that it is there."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_root() / "compiled"))
    mark = _mark(config)
    with suppress(OSError):  # a cache that cannot be written costs time only
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def _mark(config: Config) -> Path:
    """Path of a marker file. It exists if a network like this was compiled before, so the compiler's cache
    probably has the code.
    """
    train = config.train
    facts = config.model.model_dump_json(), train.batch_tokens, train.micro_batch_tokens, train.precision
    versions = torch.__version__, torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    key = hashlib.sha256(repr((facts, versions)).encode()).hexdigest()[:16]
    return cache_root() / "compiled" / f"{key}.mark"


class CompiledLayers:
    """The layers of a network, compiled for batches of one size. All layers of a class share one compilation,
    so compiling takes only as long as for two layers.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        kinds = {type(layer) for layer in layers}
        compiled = {kind: torch.compile(kind.forward, dynamic=False, fullgraph=True) for kind in kinds}
        self._forwards = [(layer, MethodType(compiled[type(layer)], layer)) for layer in layers]

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """In this context the layers run compiled. Validation and translation, where sizes vary, run them
        uncompiled.
        """
        for layer, forward in self._forwards:
            layer.__dict__["forward"] = forward  # hides the method of the class
        try:
            yield
        finally:
            for layer, _ in self._forwards:
                del layer.__dict__["forward"]


# Positions of the smallest part: with fewer, starting the operations takes longer than computing them.
_MIN_POSITIONS = 256

Gradients = tuple[Tensor | None, ...]


def gradient_threads(config: Config, device: torch.device, dtype: torch.dtype) -> int:
    """Number of threads that may compute parts of a batch. It is 1 if anything but our own dropout is random,
    because each part needs its own generator, and in float16, because GradScaler is not thread-safe.
    """
    model, train = config.model, config.train
    only_dropout = model.kind == "transformer" and not model.attention.hard
    only_ours = not model.attention_dropout or dtype == torch.bfloat16  # the fused kernel has its own masks
    plain = train.compile is not True and not train.activation_checkpointing
    if device.type == "cpu" and dtype != torch.float16 and only_dropout and only_ours and plain:
        return torch.get_num_threads()
    return 1


class GradientThreads:
    """Computes gradients of an objective in several threads. They are summed in a fixed order: with the same
    number of threads, the same batches give the same bits.
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
            # All threads share torch's cache of cast weights, and the first thread to finish empties it. So
            # whether a weight that another thread uses twice is cast once or twice would depend on timing.
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


class _Copies(torch.autograd.Function):
    """Float32 tensors -> their copies in `dtype`, whose gradients come back in float32."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        return tuple(_cast(weights, dtype))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *_cast(grads, torch.float32))


def _cast(tensors: tuple[Tensor, ...], dtype: torch.dtype) -> list[Tensor]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(copies, list(tensors))
    return copies


class WeightCopies:
    """The linear layers of some blocks, which compute with copies of their weights where asked."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        linear = [module for block in blocks for module in block.modules() if isinstance(module, nn.Linear)]
        self._weights = [(module, name) for module in linear for name, _ in module.named_parameters()]

    @contextmanager
    def in_dtype(self, dtype: torch.dtype) -> Iterator[None]:
        """In this context the layers compute with copies of their weights in `dtype`."""
        weights = [module.get_parameter(name) for module, name in self._weights]
        trained = tuple(weight for weight in weights if weight.requires_grad)
        frozen = tuple(weight.detach() for weight in weights if not weight.requires_grad)
        trained_copies = iter(_Copies.apply(dtype, *trained) if trained else ())
        frozen_copies = iter(_cast(frozen, dtype) if frozen else ())
        # What stands in a module's __dict__ is found before its parameter of the same name.
        for (module, name), weight in zip(self._weights, weights):
            module.__dict__[name] = next(trained_copies if weight.requires_grad else frozen_copies)
        try:
            yield
        finally:
            for module, name in self._weights:
                del module.__dict__[name]


def checkpoint_activations(layers: Iterable[nn.Module]) -> None:
    """From now on the forward pass of each layer keeps only its input; the backward pass computes the layer
    again, with the same dropout.

    Replaces only each layer's `forward`: the parameters keep their names, and what FSDP2 does before a layer
    stays outside the part that is computed again.
    """
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
