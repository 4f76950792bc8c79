"""How long a training will take on this machine, and in how much memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from transformer_mt.companions.wizard.lengths import Lengths
from transformer_mt.companions.wizard.speed import seconds_per_update
from transformer_mt.companions.wizard.update_memory import UpdateMemory, update_memory
from transformer_mt.config import Config
from transformer_mt.config.resolve import changed, updates_of_epochs, with_packing
from transformer_mt.data.batches.batching import plan_epoch
from transformer_mt.data.batches.packing import RowShape, plan_packed_epoch
from transformer_mt.device import choose_device, choose_precision
from transformer_mt.errors import InputError
from transformer_mt.memory import free_memory, peak_memory, reset_peak
from transformer_mt.run.batch_budget import largest_budget, trial_batch
from transformer_mt.update.acceleration import is_compiled

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
    parameters: int
    state_bytes: float
    """Weights, gradients and moments."""
    peak_bytes: float
    available_bytes: float
    """Memory that may be used."""
    seconds: float | None
    """Seconds of an update; None for what does not fit this machine, and cannot be measured."""
    is_compiled: bool
    """Whether the training will be compiled, which is not measured."""
    changes: list[Advice]
    """Suggested changes of the config."""


def plan_training(config: Config, lengths: Lengths) -> TrainingPlan:
    """The plan for one process on this machine, whose speed is measured."""
    if config.train.parallel == "fsdp":
        raise InputError("train.parallel must be ddp on one device, but is fsdp")
    config = with_packing(config, choose_device(config.train.device).type == "cuda")
    planner = _Planner(config, lengths)
    if config.train.batch_tokens == "auto":
        least = max(1024, config.data.max_length)
        tokens = largest_budget(planner.peak, int(planner.available), least, config.train.update_tokens)
        planner = _Planner(changed(config, "train", batch_tokens=tokens), lengths)
    return planner.plan()


class _Planner:
    def __init__(self, config: Config, lengths: Lengths) -> None:
        self.config, self.train, self.lengths = config, config.train, lengths
        self.device = choose_device(config.train.device)
        self.dtype = choose_precision(config.train.precision, self.device)
        self.available = free_memory(self.device)

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
        return update_memory(self.config, self.lengths.vocab_size, batch, self.dtype, on_gpu)

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
        reset_peak(self.device)
        every = -(-len(self.lengths.src) // _SAMPLE)
        sample = list(zip(self.lengths.src[::every].tolist(), self.lengths.tgt[::every].tolist()))
        seconds = seconds_per_update(self.config, self.lengths.vocab_size, sample, update_tokens, tokens)
        return seconds, float(peak_memory(self.device)) if tokens == pass_tokens else peak

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
