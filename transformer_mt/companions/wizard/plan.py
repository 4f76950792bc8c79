"""The estimates of `train --plan` (printed in commands.py): how long a training takes on this machine, in how
much memory; and model sizes for amounts of data.

Sizes for up to 30,000 pairs are measured (docs/measurements/sizing.md, docs/measurements/experiments.md).
Beyond they follow the literature: the paper's base model and its dropout (Vaswani et al. 2017).
"""

import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from transformer_mt.config import Config
from transformer_mt.config.resolve import changed, updates_of_epochs, with_packing
from transformer_mt.data.batches.batch import Batch, make_batch, make_packed_batch
from transformer_mt.data.batches.batching import Mixture, plan_epoch
from transformer_mt.data.batches.encoded_pairs import Column
from transformer_mt.data.batches.packing import RowShape, packed_rows, plan_packed_epoch
from transformer_mt.device import (
    choose_device,
    choose_precision,
    free_memory,
    keep_freed_memory,
    peak_memory,
    reset_peak,
    use_device,
)
from transformer_mt.errors import InputError
from transformer_mt.model.build_model import build_model
from transformer_mt.model.fast_attention import without_cpu_code
from transformer_mt.model.interface import count_by_part
from transformer_mt.run.batch_budget import largest_budget, trial_batch
from transformer_mt.training import prepared
from transformer_mt.update.acceleration import is_compiled
from transformer_mt.update.build_updater import adapt, build_trial_updater


@dataclass(frozen=True)
class Size:
    """A config for some amount of data."""

    pairs: int
    """The number of pairs that it is for. `size_for` compares logarithms to find the nearest size."""
    vocab_size: int
    d_model: int
    layers: int
    dropout: float
    bpe_dropout: float
    learning_rate: float
    epochs: float
    batch_tokens: int = 4096
    position: str = "rotary"
    shallow_decoder: bool = False
    """The decoder has one layer, instead of as many as the encoder."""

    @property
    def d_ff(self) -> int:
        return 4 * self.d_model

    @property
    def num_heads(self) -> int:
        return self.d_model // 64


SIZES = [
    Size(10_000, 8000, 256, 3, 0.3, 0.1, 0.006, 40),
    Size(30_000, 8000, 256, 3, 0.2, 0.1, 0.006, 20),
    Size(130_000, 8000, 256, 3, 0.1, 0.0, 0.006, 15),
    Size(500_000, 16_000, 512, 4, 0.1, 0.0, 0.003, 12, 8192),
    Size(4_500_000, 32_000, 512, 6, 0.1, 0.0, 0.002, 8, 25_000),
]
"""From small to large."""

_DECAY, _MOST_DECAY = 6.0, 2.0


def weight_decay(learning_rate: float, updates: int) -> float:
    """The weight decay for a training of this many updates. What matters is the product of weight decay,
    learning rate and number of updates (Wang and Aitchison 2024; measured in docs/measurements/sizing.md).
    """
    return float(f"{min(_MOST_DECAY, _DECAY / (learning_rate * updates)):.2g}")


UNSEGMENTED_LEAST = 8000
"""Smallest vocabulary size with a language such as Chinese, which has thousands of characters."""


def size_for(pairs: int) -> Size:
    """The size for this number of pairs."""
    return min(SIZES, key=lambda size: abs(log(size.pairs / max(1, pairs))))


PURPOSES = ("any", "ctranslate2", "huggingface", "browser", "bergamot")
"""The exports that a model may be for."""

_BROWSER_WIDTH = 256
MARIAN = "sinusoidal_marian"
"""Positions of a model for Bergamot, whose decoder is an SSRU and begins with zeros."""


def suited(size: Size, purpose: str) -> Size:
    """The size for an export. Only sinusoidal positions fit all exports. A model for the browser must load
    and run on a phone, so it is narrow, and its decoder, which runs once per token, has one layer; so is one
    for Bergamot, which runs there, too.
    """
    if purpose in ("any", "huggingface"):
        return replace(size, position="sinusoidal")
    if purpose in ("browser", "bergamot"):
        width = min(size.d_model, _BROWSER_WIDTH)
        narrow = max((s for s in SIZES if s.d_model <= width), key=lambda s: min(s.pairs, size.pairs))
        position = MARIAN if purpose == "bergamot" else narrow.position
        return replace(narrow, pairs=size.pairs, epochs=size.epochs, shallow_decoder=True, position=position)
    return size


_FEW_EPOCHS = 18


def shortened(size: Size, epochs: float) -> Size:
    """The size for a training of this many epochs. In few epochs nothing overfits, and regularization would
    cost up to three BLEU.
    """
    if epochs >= _FEW_EPOCHS:
        return size
    return replace(size, bpe_dropout=0.0, dropout=min(size.dropout, 0.1))


def smaller(size: Size) -> list[Size]:
    """The sizes below this one, from large to small."""
    return [
        replace(other, position=size.position, shallow_decoder=size.shallow_decoder)
        for other in reversed(SIZES)
        if other.pairs < size.pairs and other.d_model <= size.d_model
    ]


@dataclass(frozen=True)
class Lengths:
    """The pairs of an epoch."""

    src: np.ndarray
    """Tokens of each source with end-of-sentence."""
    tgt: np.ndarray
    vocab_size: int
    """Size of the vocabulary, or of the larger one if there are two."""
    copies: float = 1.0
    """How many pairs of the epoch each pair here stands for. Above 1 if the pairs are a sample."""


def lengths_of(config: Config) -> tuple[Config, Lengths]:
    """The lengths of the pairs that a training of the config uses, and the config as `prepared` returns
    it.
    """
    config, data = prepared(config)
    mixture = Mixture(data.sizes, data.weights, config.seed)
    uses = sum(size * weight for size, weight in zip(data.sizes, data.weights))
    part, copies = range(len(data.train)), 1.0
    if uses > config.data.window_pairs:
        part = range(min(len(data.train), config.data.window_pairs))
        copies = uses / len(part)
    src, tgt = data.rows(config, mixture).lengths(0, part)
    if copies == 1.0 and (rows := mixture.rows(0)) is not None:
        src, tgt = src[rows], tgt[rows]
    vocab_size = max(data.tokenizer.src.vocab_size(), data.tokenizer.tgt.vocab_size())
    return config, Lengths(np.asarray(src), np.asarray(tgt), vocab_size, copies)


@dataclass(frozen=True)
class UpdateMemory:
    """The memory of one update on a device that trains alone."""

    parameters: dict[str, int]
    """Of each part of the model."""
    state_bytes: int
    """Weights, gradients and the optimizer's moments."""
    peak_bytes: int
    """Peak memory, including activations and intermediate results."""


def update_memory(
    config: Config, vocab_size: int, batch: Batch, dtype: torch.dtype, on_gpu: bool = False
) -> UpdateMemory:
    """The memory of an update of `config` on this batch, in the precision of `dtype`. With `on_gpu`, the code
    for GPUs is run. InputError for recurrent networks, whose operations depend on the values of tensors.
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
    return UpdateMemory(count_by_part(model), state, memory.peak)


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


# Number of warm-up updates, maximum number of measured updates, and the seconds that these may take.
_WARM, _MOST, _SECONDS = 2, 20, 12.0
_IDS = 4  # number of special ids, which come before all others


def seconds_per_update(
    config: Config,
    vocab_size: int,
    lengths: Sequence[tuple[int, int]],
    tokens: int = 0,
    micro_batch_tokens: int = 0,
) -> float:
    """The median time of an update of `config` on this machine. If given, `tokens` is the number of padded
    tokens of an update, and `micro_batch_tokens` divides it into micro-batches. `lengths` are the numbers of
    source and target tokens in a sample of the pairs, including end-of-sentence.
    """
    train = config.train
    device = choose_device(train.device)
    use_device(device)
    if device.type == "cpu":
        keep_freed_memory()
    dtype = choose_precision(train.precision, device)
    shared = config.tokenizer.shared
    model = build_model(config.model, vocab_size, vocab_size, shared, config.data.max_length)
    adapt(model, train)
    model = model.to(device)
    config = with_packing(config, device.type == "cuda")
    updater = build_trial_updater(config, model, device, dtype, micro_batch_tokens, may_capture=True)
    times: list[float] = []
    for batch in typical_batches(config, vocab_size, lengths, tokens):
        begun = time.perf_counter()
        updater.update([batch], 1e-6).result()
        times.append(time.perf_counter() - begun)
        if len(times) == _WARM + _MOST or sum(times[_WARM:]) >= _SECONDS:
            break
    return float(np.median(times[_WARM:] or times))


def typical_batches(
    config: Config, vocab_size: int, lengths: Sequence[tuple[int, int]], tokens: int = 0
) -> Iterator[Batch]:
    """Yield batches of random ids without end, packed or with pairs of similar length from anywhere in the
    corpus, as in training. A batch has `tokens` padded tokens, by default as many as an update. Pairs that
    are too long are left out, as in training.
    """
    most = config.data.max_length
    kept = [pair for pair in lengths if max(pair) <= most] or [(most, most)]
    budget = tokens or config.train.update_tokens or int(config.train.batch_tokens) * config.train.accumulate
    generator, ordered = np.random.default_rng(1), sorted(kept, key=max)
    enough = 1 + int(2 * budget / np.mean([max(pair) for pair in kept]))
    src, tgt = np.array(kept).T
    shape = RowShape.of(budget, src, tgt, int(np.maximum(src, tgt).max()))
    while config.train.packed is True:
        src, tgt = np.array(kept)[generator.integers(0, len(kept), enough)].T
        row = packed_rows(src, tgt, shape)
        used = np.argsort(row, kind="stable")[: np.count_nonzero(row < shape.rows)]
        columns = [
            Column.of([generator.integers(_IDS, vocab_size, length - 1) for length in side[used]])
            for side in (src, tgt)
        ]
        yield make_packed_batch(columns[0], columns[1], row[used], shape)
    while True:
        first = int(generator.integers(0, len(ordered)))
        size = max(1, budget // max(ordered[first]))
        rows = [ordered[first - i] for i in range(min(first + 1, size))]
        rows = (rows * size)[:size]
        sides = [[generator.integers(_IDS, vocab_size, row[side] - 1) for row in rows] for side in (0, 1)]
        yield make_batch(sides[0], sides[1])


# Pairs whose lengths are enough to make typical batches of.
_SAMPLE = 10_000
_DAY = 86_400.0


@dataclass(frozen=True)
class Advice:
    """A change of the config that the plan suggests, and why."""

    keys: str
    reason: str


@dataclass(frozen=True)
class TrainingPlan:
    """A training before it begins."""

    pairs: float
    """Pairs of an epoch."""
    update_tokens: int
    """Padded tokens of an update."""
    target_tokens: float
    """Real target tokens of an update."""
    padding: float
    """Share of the positions that hold nothing."""
    packed: bool
    """Whether rows hold several sentences."""
    updates: int
    epochs: float
    parameters: dict[str, int]
    """Of each part of the model."""
    state_bytes: float
    """Weights, gradients and moments."""
    peak_bytes: float
    available_bytes: float
    """Memory that may be used."""
    seconds: float | None
    """Seconds per update. None if the training does not fit this machine and so cannot be measured."""
    is_compiled: bool
    """Whether the training will be compiled. The measured updates are not."""
    changes: list[Advice]
    """Suggested changes of the config."""


@dataclass(frozen=True)
class Machine:
    """The device that a plan is for: its memory, and updates measured on it."""

    device: torch.device
    dtype: torch.dtype
    free_bytes: float

    @classmethod
    def of(cls, config: Config) -> "Machine":
        """The device of a config on this machine."""
        device = choose_device(config.train.device)
        return cls(device, choose_precision(config.train.precision, device), free_memory(device))

    def measured(
        self,
        config: Config,
        vocab_size: int,
        lengths: Sequence[tuple[int, int]],
        tokens: int,
        micro_batch_tokens: int,
    ) -> tuple[float, float]:
        """(seconds of an update, peak bytes); the arguments are those of `seconds_per_update`."""
        reset_peak(self.device)
        seconds = seconds_per_update(config, vocab_size, lengths, tokens, micro_batch_tokens)
        return seconds, float(peak_memory(self.device))


def plan_training(config: Config, lengths: Lengths, machine: Machine | None = None) -> TrainingPlan:
    """The plan for one process on this machine, whose speed is measured."""
    if config.train.parallel == "fsdp":
        raise InputError("train.parallel must be ddp on one device, but is fsdp")
    machine = machine or Machine.of(config)
    config = with_packing(config, machine.device.type == "cuda")
    planner = _Planner(config, lengths, machine)
    if config.train.batch_tokens == "auto":
        least = max(1024, config.data.max_length)
        tokens = largest_budget(planner.peak, int(planner.available), least, config.train.update_tokens)
        planner = _Planner(changed(config, "train", batch_tokens=tokens), lengths, machine)
    return planner.plan()


class _Planner:
    def __init__(self, config: Config, lengths: Lengths, machine: Machine) -> None:
        self.config, self.train, self.lengths = config, config.train, lengths
        self.machine, self.device, self.available = machine, machine.device, machine.free_bytes

    def plan(self) -> TrainingPlan:
        train = self.train
        per_epoch, target_tokens, padding = self._updates()
        updates = train.max_updates
        if train.max_epochs:
            updates = min(updates, max(1, updates_of_epochs(train.max_epochs, per_epoch)))
        # Padded tokens of an update, and those of one pass.
        update_tokens = train.update_tokens or int(train.batch_tokens) * train.accumulate
        pass_tokens = min(update_tokens, int(train.batch_tokens), train.micro_batch_tokens or update_tokens)
        memory = self._memory(pass_tokens)
        seconds, peak = self._measured(memory, update_tokens, pass_tokens)
        return TrainingPlan(
            pairs=len(self.lengths.src) * self.lengths.copies,
            update_tokens=update_tokens,
            target_tokens=target_tokens,
            padding=padding,
            packed=train.packed is True,
            updates=updates,
            epochs=updates / per_epoch,
            parameters=memory.parameters,
            state_bytes=memory.state_bytes,
            peak_bytes=peak,
            available_bytes=self.available,
            seconds=seconds,
            is_compiled=is_compiled(self.config, self.device, updates),
            changes=[
                *self._memory_changes(memory, peak, update_tokens, pass_tokens),
                *self._speed_changes(seconds, updates),
            ],
        )

    def peak(self, tokens: int) -> int:
        """The most bytes of a pass of this many padded tokens."""
        return self._memory(tokens).peak_bytes

    def _memory(self, tokens: int) -> UpdateMemory:
        src, tgt = self.lengths.src, self.lengths.tgt
        longest = int(np.maximum(src, tgt).max())
        batch = trial_batch(self.config, tokens, longest, RowShape.of(tokens, src, tgt, longest))
        on_gpu = self.device.type == "cuda"
        return update_memory(self.config, self.lengths.vocab_size, batch, self.machine.dtype, on_gpu)

    def _updates(self) -> tuple[float, float, float]:
        """Updates per epoch, real target tokens per update, and the share of padding."""
        src, tgt, train = self.lengths.src, self.lengths.tgt, self.train
        budget = train.update_tokens or int(train.batch_tokens)
        if train.packed is True:
            shape = RowShape.of(budget, src, tgt, int(np.maximum(src, tgt).max()))
            batches = plan_packed_epoch(src, tgt, shape, self.config.seed, epoch=0)
            positions = len(batches) * shape.rows * (shape.src + shape.tgt)
        else:
            batches = plan_epoch(src, tgt, budget, self.config.seed, epoch=0)
            positions = sum(len(rows) * (int(src[rows].max()) + int(tgt[rows].max())) for rows in batches)
        updates = len(batches) * self.lengths.copies / (1 if train.update_tokens else train.accumulate)
        target_tokens = int(tgt.sum(dtype=np.int64))
        real = target_tokens + int(src.sum(dtype=np.int64))
        return updates, target_tokens * self.lengths.copies / updates, 1 - real / positions

    def _measured(
        self, memory: UpdateMemory, update_tokens: int, pass_tokens: int
    ) -> tuple[float | None, float]:
        """(seconds per update, peak bytes) on this device, with passes that fit the memory. The seconds are
        None if the model or the longest sentence does not fit.
        """
        peak, tokens = float(memory.peak_bytes), pass_tokens
        if peak > self.available:
            tokens = self._fitting_tokens(memory, peak, pass_tokens)
        if not tokens or memory.state_bytes > self.available:
            return None, peak
        every = -(-len(self.lengths.src) // _SAMPLE)
        sample = list(zip(self.lengths.src[::every].tolist(), self.lengths.tgt[::every].tolist()))
        seconds, measured = self.machine.measured(
            self.config, self.lengths.vocab_size, sample, update_tokens, tokens
        )
        return seconds, measured if tokens == pass_tokens else peak

    def _fitting_tokens(self, memory: UpdateMemory, peak: float, pass_tokens: int) -> int:
        """The most padded tokens per pass that fit the memory, estimated on a line through two sizes; 0 if
        the longest sentence does not fit.
        """
        longest = int(max(self.lengths.src.max(), self.lengths.tgt.max()))
        sizes = [max(longest, pass_tokens // 4), max(4 * longest, pass_tokens)]
        small, large = map(self.peak, sizes)
        bytes_of_token = max(1.0, (large - small) / (sizes[1] - sizes[0]))
        # Memory measured above the computed peak is also needed with fewer tokens.
        free = self.available - max(peak, memory.peak_bytes) + memory.peak_bytes - large
        tokens = int(sizes[1] + free / bytes_of_token) // 256 * 256
        if peak > self.available:  # a line is not exact
            tokens = min(tokens, pass_tokens - 256)
        return tokens if tokens >= longest else 0

    def _memory_changes(
        self, memory: UpdateMemory, peak: float, update_tokens: int, pass_tokens: int
    ) -> Iterator[Advice]:
        train = self.train
        if memory.state_bytes > self.available:
            yield Advice("model.d_model", "the model is too large: shrink it or add devices")
            return
        if peak > self.available:
            if fitting := self._fitting_tokens(memory, peak, pass_tokens):
                yield Advice(f"train.micro_batch_tokens={fitting}", "fits the memory, with the same updates")
            elif not train.activation_checkpointing:
                yield Advice("train.activation_checkpointing=true", "one sentence does not fit the memory")
            else:
                yield Advice("data.max_length", "one sentence does not fit the memory: shorter ones may")
        elif (
            pass_tokens < update_tokens
            and (fitting := self._fitting_tokens(memory, peak, pass_tokens)) >= 2 * pass_tokens
        ):
            tokens = min(fitting, update_tokens)
            now, then = (-(-update_tokens // size) for size in (pass_tokens, tokens))
            fewer = f"fits the memory; the {now} passes of an update become {then}"
            if train.update_tokens:
                yield Advice(f"train.batch_tokens={tokens}", fewer)
            elif tokens == update_tokens and not train.micro_batch_tokens:
                yield Advice(f"train.batch_tokens={tokens} train.accumulate=1", fewer)

    def _speed_changes(self, seconds: float | None, updates: int) -> Iterator[Advice]:
        if seconds is not None and self.device.type == "cpu" and seconds * updates > _DAY:
            yield Advice(f"train.max_updates={int(_DAY / seconds)}", "one day on this CPU")
