"""torch.compile for the layers and the loss of packed batches, which all have one size."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MethodType

import torch
from torch import nn

from transformer_mt.cache import cache_root
from transformer_mt.config import Config

# Seconds that compiling the layers and the loss takes, and those of loading them from the compiler's cache.
_COMPILING, _LOADING = 20.0, 8.0
# Seconds that they save in an update, and for each number that a layer makes, on an H200.
_SAVED_PER_UPDATE, _SAVED_PER_NUMBER = 3e-3, 1.3e-10


def is_compiled(config: Config, device: torch.device, updates: int) -> bool:
    """True if the updates that are left use torch.compile: with `auto`, on a GPU, if it takes less time than
    it saves.
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
    """The layers of a network, compiled for batches of one size. One compilation serves all layers of a
    kind, so it takes as long as that of two layers.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        kinds = {type(layer) for layer in layers}
        compiled = {kind: torch.compile(kind.forward, dynamic=False, fullgraph=True) for kind in kinds}
        self._forwards = [(layer, MethodType(compiled[type(layer)], layer)) for layer in layers]

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within it the layers are the compiled ones. Validation and translation, whose sizes change, use
        them as they are.
        """
        for layer, forward in self._forwards:
            layer.__dict__["forward"] = forward  # hides the method of the class
        try:
            yield
        finally:
            for layer, _ in self._forwards:
                del layer.__dict__["forward"]
