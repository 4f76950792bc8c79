"""How long a training will take, in how much memory, on this machine or on one that is only described."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from transformer_mt.config import Config
from transformer_mt.data.batching import plan_epoch
from transformer_mt.device import choose_device, choose_precision
from transformer_mt.errors import InputError
from transformer_mt.training.batch_budget import (
    free_memory,
    largest_budget,
    longest_batch,
    peak_memory,
    reset_peak,
)
from transformer_mt.training.lengths import Lengths
from transformer_mt.training.machines import SECONDS_PER_OPERATION, UTILISATION, Machine
from transformer_mt.training.speed import seconds_per_update
from transformer_mt.training.update_cost import UpdateCost, muon_work, update_cost

# Pairs whose lengths are enough to make typical batches of.
_SAMPLE = 10_000
# Of a device's memory: the rest is for fragments, validation and the driver.
_ROOM = 0.9
_DAY = 86_400.0
# Muon's steps are sent in bfloat16.
_BYTES_OF_STEP = 2
# Share of an update's time that a change must save.
_WORTH = 0.03
# Sending is hidden behind the backward pass, which is two thirds of the arithmetic (DDP), or behind both
# passes (FSDP2).
_HIDES = {"ddp": 2 / 3, "fsdp": 1.0}


@dataclass(frozen=True)
class Change:
    """Keys of the config that would better be others, and why."""

    keys: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """A training before it begins. Bytes and seconds are those of one device."""

    pairs: float
    """Of an epoch."""
    update_tokens: int
    """Padded tokens of an update, over all devices."""
    target_tokens: float
    """Real target tokens of an update, over all devices."""
    padding: float
    """Share of the positions that hold nothing."""
    updates: int
    epochs: float
    cost: UpdateCost
    state_bytes: float
    """Weights, gradients and moments."""
    peak_bytes: float
    room_bytes: float
    """Memory that may be used."""
    sent_bytes: float
    """Sent by each device for an update, and as many received."""
    sending_seconds: float | None
    """Unless it is not known how fast the devices are connected."""
    seconds: float
    """Of an update."""
    is_measured: bool
    """Whether the seconds were measured on this machine."""
    changes: list[Change]
    """Keys that would better be others here."""


def plan_training(config: Config, lengths: Lengths, machine: Machine | None, ranks: int = 1) -> Plan:
    """The plan for a described machine, or with None for this one, whose speed is measured, with so many
    processes.
    """
    ranks = machine.count if machine else ranks
    if config.train.batch_tokens == "auto":
        config = _with_budget(config, lengths, machine)
    return _Planner(config, lengths, machine, ranks).plan()


def _with_budget(config: Config, lengths: Lengths, machine: Machine | None) -> Config:
    """The config with the most tokens that fit a device where `train.batch_tokens` is auto."""
    device = choose_device(config.train.device) if machine is None else torch.device("cpu")
    dtype = choose_precision(config.train.precision, device) if machine is None else torch.bfloat16
    room = _room(machine, device)

    def measure(tokens: int) -> int:
        batch = longest_batch(lengths.src, lengths.tgt, tokens)
        return update_cost(config, lengths.vocab_size, batch, dtype).peak_bytes

    tokens = largest_budget(measure, int(room), least=max(1024, config.data.max_length))
    return config.model_copy(update={"train": config.train.model_copy(update={"batch_tokens": tokens})})


def _room(machine: Machine | None, device: torch.device) -> float:
    """Bytes that may be used of the device."""
    return free_memory(device) if machine is None else _ROOM * 1e9 * machine.device.memory_gb


def _speed(machine: Machine) -> float:
    """Operations a second of one device."""
    return UTILISATION * 1e12 * machine.device.tflops


class _Planner:
    def __init__(self, config: Config, lengths: Lengths, machine: Machine | None, ranks: int) -> None:
        train = config.train
        if machine is not None and train.precision == "fp32":
            raise InputError(
                "train.precision must be auto, bf16 or fp16 to plan for a described machine, but is fp32"
            )
        if train.parallel == "fsdp" and ranks == 1:
            raise InputError("train.parallel must be ddp on one device, but is fsdp")
        self.config, self.train, self.lengths = config, train, lengths
        self.machine, self.ranks = machine, ranks
        self.device = choose_device(train.device) if machine is None else torch.device("cpu")
        self.dtype = torch.float16 if train.precision == "fp16" else torch.bfloat16
        if machine is None:
            self.dtype = choose_precision(train.precision, self.device)
        self.is_sharded = train.parallel == "fsdp"
        # Padded tokens of an update on one device, and those of one pass.
        self.device_tokens = -(-train.update_tokens // ranks) or int(train.batch_tokens) * train.accumulate
        self.pass_tokens = min(
            self.device_tokens, int(train.batch_tokens), train.micro_batch_tokens or self.device_tokens
        )
        every = -(-len(lengths.src) // _SAMPLE)
        self.sample = list(zip(lengths.src[::every].tolist(), lengths.tgt[::every].tolist()))
        longest = longest_batch(lengths.src, lengths.tgt, self.pass_tokens)
        self.cost = update_cost(config, lengths.vocab_size, longest, self.dtype)
        self.muon_numbers, self.muon_flops = muon_work(config, lengths.vocab_size)
        self.peak_bytes = self._computed_peak()
        self.room = _room(machine, self.device) / (1 if machine else ranks)

    def plan(self) -> Plan:
        per_epoch, target_tokens, padding = self._updates()
        updates = self.train.max_updates
        if self.train.max_epochs:
            updates = min(updates, max(1, round(self.train.max_epochs * per_epoch)))
        computing, sending = self._computing(), self._sending()
        seconds = computing
        if sending is not None and self.machine is not None:
            seconds += max(0.0, sending - _HIDES[self.train.parallel] * computing)
        return Plan(
            pairs=len(self.lengths.src) * self.lengths.copies,
            update_tokens=self.train.update_tokens or self.device_tokens * self.ranks,
            target_tokens=target_tokens,
            padding=padding,
            updates=updates,
            epochs=updates / per_epoch,
            cost=self.cost,
            state_bytes=self._state_bytes(self.is_sharded),
            peak_bytes=self.peak_bytes,
            room_bytes=self.room,
            sent_bytes=self._sent_bytes(),
            sending_seconds=sending,
            seconds=seconds,
            is_measured=self.machine is None,
            changes=[*self._memory_changes(), *self._speed_changes(seconds, sending, updates)],
        )

    def _updates(self) -> tuple[float, float, float]:
        """Updates of an epoch, real target tokens of one, and the share of padding."""
        src, tgt, train = self.lengths.src, self.lengths.tgt, self.train
        batches = plan_epoch(
            src, tgt, train.update_tokens or int(train.batch_tokens), self.config.seed, epoch=0
        )
        together = 1 if train.update_tokens else train.accumulate * self.ranks
        updates = len(batches) * self.lengths.copies / together
        positions = sum(len(rows) * (int(src[rows].max()) + int(tgt[rows].max())) for rows in batches)
        target_tokens = int(tgt.sum(dtype=np.int64))
        real = target_tokens + int(src.sum(dtype=np.int64))
        return updates, target_tokens * self.lengths.copies / updates, 1 - real / positions

    def _computing(self) -> float:
        """Seconds of an update's arithmetic on one device."""
        return self._measured() if self.machine is None else self._computed(self.machine)

    def _measured(self) -> float:
        """What does not fit the memory is measured in a part that does."""
        tokens = self.device_tokens
        if self.peak_bytes > self.room:
            tokens = max(512, self._fitting_tokens())
        reset_peak(self.device)
        seconds = seconds_per_update(self.config, self.lengths.vocab_size, self.sample, tokens)
        if tokens == self.device_tokens:
            self.peak_bytes = float(peak_memory(self.device))
        return seconds * self.device_tokens / tokens

    def _computed(self, machine: Machine) -> float:
        src, tgt = (np.full(1, round(float(side.mean()))) for side in (self.lengths.src, self.lengths.tgt))
        typical = longest_batch(src, tgt, self.pass_tokens)
        cost = update_cost(self.config, self.lengths.vocab_size, typical, self.dtype)
        passes = self.device_tokens / self.pass_tokens
        flops = passes * (cost.flops - self.muon_flops)
        flops += self.muon_flops / (self.ranks if self._is_muon_shared() else 1)
        starting = passes * SECONDS_PER_OPERATION * cost.operations
        return max(flops / _speed(machine), starting)

    def _is_muon_shared(self) -> bool:
        return self.is_sharded or self.train.share_muon

    def _state_bytes(self, is_sharded: bool) -> float:
        return self.cost.state_bytes / (self.ranks if is_sharded else 1)

    def _computed_peak(self) -> float:
        """With sharded weights also two whole layers: the one in use, and the next."""
        activations = self.cost.peak_bytes - self.cost.state_bytes
        layers = 2 * 4 * self.cost.layer_parameters if self.is_sharded else 0
        return self._state_bytes(self.is_sharded) + activations + layers

    def _fitting_tokens(self) -> int:
        """Padded tokens of one pass that fit the memory, on a line through two of its sizes."""
        fewer = max(1, self.pass_tokens // 4)
        batch = longest_batch(self.lengths.src, self.lengths.tgt, fewer)
        cost = update_cost(self.config, self.lengths.vocab_size, batch, self.dtype)
        bytes_of_token = (self.cost.peak_bytes - cost.peak_bytes) / (self.pass_tokens - fewer)
        free = self.room - self._computed_peak()
        return max(0, int(self.pass_tokens + free / max(1.0, bytes_of_token)) // 256 * 256)

    def _sent_bytes(self) -> float:
        """A ring of R sends (R - 1) / R of the numbers to gather or to sum them, twice that for both."""
        around = (self.ranks - 1) / self.ranks
        numbers = self.cost.parameters
        if not self.is_sharded:
            muon = _BYTES_OF_STEP * self.muon_numbers if self.train.share_muon else 0
            return around * (2 * 4 * numbers + muon)
        passes = -(-self.device_tokens // self.pass_tokens)
        weights = 2 if self.train.fsdp_weights == "bf16" else 4
        return around * (passes * (2 * weights + 4) * numbers + 2 * _BYTES_OF_STEP * self.muon_numbers)

    def _sending(self) -> float | None:
        if self.ranks == 1:
            return 0.0
        return self._sent_bytes() / self.machine.bandwidth if self.machine else None

    def _memory_changes(self) -> Iterator[Change]:
        train = self.train
        longest = int(max(self.lengths.src.max(), self.lengths.tgt.max()))
        if self._state_bytes(self.is_sharded) > self.room:
            if self._state_bytes(is_sharded=True) < self.room:
                yield Change(
                    "train.parallel=fsdp", "the weights, gradients and moments do not fit one device"
                )
            else:
                yield Change("model.d_model", "the model does not fit: smaller, or more devices")
        elif self.peak_bytes > self.room:
            if (tokens := self._fitting_tokens()) >= longest:
                yield Change(f"train.micro_batch_tokens={tokens}", "fits the memory, with the same updates")
            else:
                yield Change("train.activation_checkpointing=true", "one sentence does not fit the memory")
        elif (
            self.pass_tokens < self.device_tokens
            and (fitting := self._fitting_tokens()) >= 2 * self.pass_tokens
        ):
            tokens = min(fitting, self.device_tokens)
            now, then = (-(-self.device_tokens // each) for each in (self.pass_tokens, tokens))
            fewer = f"fits the memory; the {now} passes of an update become {then}"
            if train.update_tokens:
                yield Change(f"train.batch_tokens={tokens}", fewer)
            elif tokens == self.device_tokens and not train.micro_batch_tokens:
                yield Change(f"train.batch_tokens={tokens} train.accumulate=1", fewer)

    def _speed_changes(self, seconds: float, sending: float | None, updates: int) -> Iterator[Change]:
        train = self.train
        if self.ranks > 1 and not train.update_tokens:
            yield Change(
                f"train.update_tokens={int(train.batch_tokens) * train.accumulate}",
                f"keeps the updates of one device; without it they are {self.ranks} times as large",
            )
        if self.machine is not None and self.ranks > 1 and self.muon_numbers and not self._is_muon_shared():
            saved = self.muon_flops / _speed(self.machine) * (1 - 1 / self.ranks)
            saved -= _BYTES_OF_STEP * self.muon_numbers / self.machine.bandwidth
            if saved > _WORTH * seconds:
                yield Change("train.share_muon=true", f"an update takes {saved / seconds:.0%} less time")
        if sending and sending > seconds / 2 and not self.is_sharded:
            key = "update_tokens" if train.update_tokens else "accumulate"
            yield Change(
                f"train.{key}={2 * getattr(train, key)}",
                "sending takes as long as computing; a larger update is sent as fast as a small one",
            )
        if self.machine is None and self.device.type == "cpu" and seconds * updates > _DAY:
            yield Change(f"train.max_updates={int(_DAY / seconds)}", "what a day holds on this CPU")
