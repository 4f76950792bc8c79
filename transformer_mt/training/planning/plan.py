"""How long a training will take, in how much memory, on this machine or on one that is only described."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from transformer_mt.config import Config
from transformer_mt.data.batches.batching import Batch, plan_epoch
from transformer_mt.device import choose_device, choose_precision
from transformer_mt.errors import InputError
from transformer_mt.memory import free_memory, peak_memory, reset_peak
from transformer_mt.runs.resolve import changed, updates_of_epochs
from transformer_mt.training.batch_budget import largest_budget, longest_batch
from transformer_mt.training.planning.cluster import SECONDS_PER_OPERATION, UTILISATION, Cluster
from transformer_mt.training.planning.lengths import Lengths
from transformer_mt.training.planning.speed import seconds_per_update
from transformer_mt.training.planning.update_cost import UpdateCost, muon_work, update_cost
from transformer_mt.training.update.compiled import is_compiled

# Pairs whose lengths are enough to make typical batches of.
_SAMPLE = 10_000
# The share of a device's memory that may be used: the rest is for fragments, validation and the driver.
_SHARE_OF_MEMORY = 0.9
_DAY = 86_400.0
# Muon's steps are sent in bfloat16.
_BYTES_OF_STEP = 2
# Share of an update's time that a change must save.
_MIN_SAVING = 0.03
# The share of a pass that is the backward pass.
_BACKWARD = 2 / 3


@dataclass(frozen=True)
class Change:
    """A change of the config that the plan suggests, and why."""

    keys: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """A training before it begins. Bytes and seconds are those of one device."""

    pairs: float
    """Pairs of an epoch."""
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
    available_bytes: float
    """Memory that may be used."""
    sent_bytes: float
    """Sent by each device for an update, and as many received."""
    sending_seconds: float
    seconds: float | None
    """Seconds of an update; None for what does not fit this machine, and cannot be measured."""
    how: str
    """How the seconds were found: computed or measured."""
    changes: list[Change]
    """Suggested changes of the config."""


def plan_training(config: Config, lengths: Lengths, cluster: Cluster | None) -> Plan:
    """The plan for a described machine, or with None for one process on this machine, whose speed is
    measured.
    """
    if config.train.batch_tokens == "auto":
        if config.train.parallel == "fsdp":
            raise InputError("train.batch_tokens must be a number with train.parallel: fsdp, but is auto")
        config = _with_budget(config, lengths, cluster)
    return _Planner(config, lengths, cluster).plan()


def _with_budget(config: Config, lengths: Lengths, cluster: Cluster | None) -> Config:
    """The config with the most tokens that fit a device where `train.batch_tokens` is auto."""
    device = choose_device(config.train.device) if cluster is None else torch.device("cpu")
    dtype = choose_precision(config.train.precision, device) if cluster is None else torch.bfloat16
    available, on_gpu = _available(cluster, device), cluster is not None or device.type == "cuda"

    def measure(tokens: int) -> int:
        batch = longest_batch(lengths.src, lengths.tgt, tokens)
        return update_cost(config, lengths.vocab_size, batch, dtype, on_gpu).peak_bytes

    least = max(1024, config.data.max_length)
    tokens = largest_budget(measure, int(available), least, config.train.update_tokens)
    return changed(config, "train", batch_tokens=tokens)


def _available(cluster: Cluster | None, device: torch.device) -> float:
    """Bytes that may be used of the device."""
    return free_memory(device) if cluster is None else _SHARE_OF_MEMORY * 1e9 * cluster.device.memory_gb


def _speed(cluster: Cluster) -> float:
    """Operations a second of one device."""
    return UTILISATION * 1e12 * cluster.device.tflops


class _Planner:
    def __init__(self, config: Config, lengths: Lengths, cluster: Cluster | None) -> None:
        train, ranks = config.train, cluster.count if cluster else 1
        if cluster is not None and train.precision == "fp32":
            raise InputError(
                "train.precision must be auto, bf16 or fp16 to plan for a described machine, but is fp32"
            )
        if train.parallel == "fsdp" and ranks == 1:
            raise InputError("train.parallel must be ddp on one device, but is fsdp")
        self.config, self.train, self.lengths = config, train, lengths
        self.cluster, self.ranks = cluster, ranks
        self.device = choose_device(train.device) if cluster is None else torch.device("cpu")
        self.dtype = torch.float16 if train.precision == "fp16" else torch.bfloat16
        if cluster is None:
            self.dtype = choose_precision(train.precision, self.device)
        self.is_sharded = train.parallel == "fsdp"
        self.shares_muon = self.is_sharded or train.share_muon
        # Padded tokens of an update on one device, and those of one pass.
        self.device_tokens = -(-train.update_tokens // ranks) or int(train.batch_tokens) * train.accumulate
        self.pass_tokens = min(
            self.device_tokens, int(train.batch_tokens), train.micro_batch_tokens or self.device_tokens
        )
        every = -(-len(lengths.src) // _SAMPLE)
        self.sample = list(zip(lengths.src[::every].tolist(), lengths.tgt[::every].tolist()))
        longest = longest_batch(lengths.src, lengths.tgt, self.pass_tokens)
        self.cost = self._cost(longest)
        self.muon_elements, self.muon_flops = muon_work(config, lengths.vocab_size)
        self.peak_bytes = self._computed_peak()
        self.available = _available(cluster, self.device)

    def plan(self) -> Plan:
        per_epoch, target_tokens, padding = self._updates()
        updates = self.train.max_updates
        if self.train.max_epochs:
            updates = min(updates, max(1, updates_of_epochs(self.train.max_epochs, per_epoch)))
        seconds = self._measured() if self.cluster is None else self._computed(self.cluster, self.shares_muon)
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
            available_bytes=self.available,
            sent_bytes=sum(self._sent_bytes(self.shares_muon)),
            sending_seconds=self._sending(),
            seconds=seconds,
            how=self._how(updates),
            changes=[*self._memory_changes(), *self._speed_changes(seconds, updates)],
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

    def _cost(self, batch: Batch) -> UpdateCost:
        on_gpu = self.cluster is not None or self.device.type == "cuda"
        return update_cost(self.config, self.lengths.vocab_size, batch, self.dtype, on_gpu)

    def _how(self, updates: int) -> str:
        if self.cluster is not None:
            return "computed"
        compiled = is_compiled(self.config, self.device, updates)
        return f"measured{' without torch.compile' if compiled else ''}"

    def _measured(self) -> float | None:
        """Seconds of an update here, in passes that fit the memory; None if not even the model does."""
        tokens = self.pass_tokens
        if self.peak_bytes > self.available:
            tokens = self._fitting_tokens()
        if not tokens or self.cost.state_bytes > self.available:
            return None
        reset_peak(self.device)
        seconds = seconds_per_update(
            self.config, self.lengths.vocab_size, self.sample, self.device_tokens, tokens
        )
        if tokens == self.pass_tokens:
            self.peak_bytes = float(peak_memory(self.device))
        return seconds

    def _computed(self, cluster: Cluster, shares_muon: bool) -> float:
        src, tgt = (np.full(1, round(float(side.mean()))) for side in (self.lengths.src, self.lengths.tgt))
        typical = longest_batch(src, tgt, self.pass_tokens)
        cost = self._cost(typical)
        passes = self.device_tokens / self.pass_tokens
        flops = passes * (cost.flops - self.muon_flops)
        muon_flops = self.muon_flops / (self.ranks if shares_muon else 1)
        starting = SECONDS_PER_OPERATION * (passes * cost.pass_operations + cost.step_operations)
        of_passes = flops / _speed(cluster)
        computing = max(of_passes + muon_flops / _speed(cluster), starting)
        # DDP sends gradients during the last backward pass, FSDP2 weights and gradients during all passes.
        # Muon's steps come after them.
        hiding = of_passes if self.is_sharded else _BACKWARD * of_passes / max(1.0, passes)
        sent, of_muon = self._sent_bytes(shares_muon)
        return computing + max(0.0, sent / cluster.bandwidth - hiding) + of_muon / cluster.bandwidth

    def _state_bytes(self, is_sharded: bool) -> float:
        return self.cost.state_bytes / (self.ranks if is_sharded else 1)

    def _computed_peak(self) -> float:
        """With sharded weights also two whole layers, the one in use and the next, and what is in no layer,
        with its gradients.
        """
        activations, whole = self.cost.peak_bytes - self.cost.state_bytes, 0
        if self.is_sharded:
            in_no_layer = self.cost.parameters - self.cost.layer_parameters
            whole = 2 * 4 * (self.cost.largest_layer + in_no_layer)
        return self._state_bytes(self.is_sharded) + activations + whole

    def _fitting_tokens(self) -> int:
        """The largest number of padded tokens per pass that fits the memory, by a line through the memory at
        two sizes; 0 if the longest sentence does not fit.
        """
        longest = int(max(self.lengths.src.max(), self.lengths.tgt.max()))
        sizes = [max(longest, self.pass_tokens // 4), max(4 * longest, self.pass_tokens)]
        batches = (longest_batch(self.lengths.src, self.lengths.tgt, size) for size in sizes)
        small, large = (self._cost(batch).peak_bytes for batch in batches)
        bytes_of_token = max(1.0, (large - small) / (sizes[1] - sizes[0]))
        # What a measurement found above the computed peak is there with fewer tokens, too.
        free = self.available - max(self.peak_bytes, self._computed_peak()) + self.cost.peak_bytes - large
        tokens = int(sizes[1] + free / bytes_of_token) // 256 * 256
        if self.peak_bytes > self.available:  # a line is not exact
            tokens = min(tokens, self.pass_tokens - 256)
        return tokens if tokens >= longest else 0

    def _sent_bytes(self, shares_muon: bool) -> tuple[float, float]:
        """During the passes, and for Muon's steps. A ring of R sends (R - 1) / R of the numbers to gather or
        to sum them, twice that for both.
        """
        around = (self.ranks - 1) / self.ranks
        of_muon = around * _BYTES_OF_STEP * self.muon_elements
        if not self.is_sharded:
            return around * 2 * 4 * self.cost.trained_parameters, of_muon if shares_muon else 0.0
        # The weights of a layer are gathered for the forward and for the backward pass, the others once; all
        # gradients are summed and divided.
        of_weight = 2 if self.train.fsdp_weights == "bf16" else 4
        in_no_layer = self.cost.parameters - self.cost.layer_parameters
        of_pass = (2 * of_weight + 4) * self.cost.layer_parameters + (4 + 4) * in_no_layer
        return around * -(-self.device_tokens // self.pass_tokens) * of_pass, 2 * of_muon

    def _sending(self) -> float:
        return sum(self._sent_bytes(self.shares_muon)) / self.cluster.bandwidth if self.cluster else 0.0

    def _memory_changes(self) -> Iterator[Change]:
        train = self.train
        if self._state_bytes(self.is_sharded) > self.available:
            if self._state_bytes(is_sharded=True) < self.available:
                yield Change(
                    "train.parallel=fsdp", "the weights, gradients and moments do not fit one device"
                )
            else:
                yield Change("model.d_model", "the model does not fit: smaller, or more devices")
        elif self.peak_bytes > self.available:
            if tokens := self._fitting_tokens():
                yield Change(f"train.micro_batch_tokens={tokens}", "fits the memory, with the same updates")
            elif not train.activation_checkpointing:
                yield Change("train.activation_checkpointing=true", "one sentence does not fit the memory")
            else:
                yield Change("data.max_length", "one sentence does not fit the memory: shorter ones may")
        elif (
            self.pass_tokens < self.device_tokens
            and (fitting := self._fitting_tokens()) >= 2 * self.pass_tokens
        ):
            tokens = min(fitting, self.device_tokens)
            now, then = (-(-self.device_tokens // size) for size in (self.pass_tokens, tokens))
            fewer = f"fits the memory; the {now} passes of an update become {then}"
            if train.update_tokens:
                yield Change(f"train.batch_tokens={tokens}", fewer)
            elif tokens == self.device_tokens and not train.micro_batch_tokens:
                yield Change(f"train.batch_tokens={tokens} train.accumulate=1", fewer)

    def _speed_changes(self, seconds: float | None, updates: int) -> Iterator[Change]:
        train = self.train
        if seconds is None:
            return
        if self.ranks > 1 and not train.update_tokens:
            tokens = f"train.update_tokens={int(train.batch_tokens) * train.accumulate}"
            yield Change(
                f"{tokens} train.accumulate=1" if train.accumulate > 1 else tokens,
                f"keeps the updates of one device; without it they are {self.ranks} times as large",
            )
        if self.cluster is not None and self.ranks > 1 and self.muon_elements and not self.shares_muon:
            saved = 1 - self._computed(self.cluster, shares_muon=True) / seconds
            if saved > _MIN_SAVING:
                yield Change("train.share_muon=true", f"an update takes {saved:.0%} less time")
        if self._sending() > seconds / 2 and not self.is_sharded:
            key = "update_tokens" if train.update_tokens else "accumulate"
            yield Change(
                f"train.{key}={2 * getattr(train, key)}",
                "sending takes as long as computing; a larger update is sent as fast as a small one",
            )
        if self.cluster is None and self.device.type == "cpu" and seconds * updates > _DAY:
            yield Change(f"train.max_updates={int(_DAY / seconds)}", "what a day holds on this CPU")
