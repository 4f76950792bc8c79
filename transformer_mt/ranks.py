"""Several processes that work together, started by torchrun; one process alone is the same code.

Small values travel between the CPUs as JSON: torch's all_gather_object would run code that other processes
send.

torchrun keeps one store for all its attempts, and with it the addresses that dead processes left there. So
each attempt has a prefix of its own. Rank 0 chooses it; each other rank requests it under a new random name,
so that it cannot get an answer from an earlier attempt.
"""

import gc
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor

from transformer_mt.checkpoint import Tensors
from transformer_mt.errors import InputError, WorkError
from transformer_mt.messages import say
from transformer_mt.processes import usable_cores

# Without this timeout, a rank that fails before the rendezvous would not be noticed.
MEETING_TIMEOUT = timedelta(minutes=2)
_PAUSE = 0.02
_met: list[str] = []
"""The attempts that this process took part in: a script may train several times."""
# A rank that dies later is noticed at once; this is for one that is alive but does not answer.
_COLLECTIVE_TIMEOUT = timedelta(minutes=10)
# For ranks that wait while another prepares data or waits for its input, which may take long.
LONG_TIMEOUT = timedelta(days=7)


def run_ranks(processes: int, words: Sequence[str]) -> int:
    """Run `transformer-mt WORDS` in several processes on this machine, as torchrun does. Returns the status
    of the first that fails, which has said why.
    """
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    # torchrun kills processes 30 seconds after a signal, but a validation and then saving may take longer.
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "600")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // processes)))
    logging.disable()  # the processes say what happens
    options = ["--standalone", f"--nproc-per-node={processes}", "-m", "transformer_mt", *words]
    try:
        run.run(run.parse_args(options))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode >= 0:
            return failure.exitcode
        say(f"rank {rank} was ended by signal {-failure.exitcode}; 9 often means too little memory")
        return 128 - failure.exitcode
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


class Ranks:
    """The processes of this training: their number, the rank of this one, and communication between them."""

    def __init__(
        self, rank: int = 0, size: int = 1, local_rank: int = 0, knows_earlier: bool = False
    ) -> None:
        """`knows_earlier`: whether torchrun has started the processes before."""
        self.rank, self.size, self.local_rank, self.knows_earlier = rank, size, local_rank, knows_earlier

    @classmethod
    def join(cls, device: torch.device, timeout: timedelta = _COLLECTIVE_TIMEOUT) -> "Ranks":
        """Join the process group that torchrun started; without torchrun, the group has one process.
        `timeout` applies to later collectives.
        """
        size = int(os.environ.get("WORLD_SIZE", 1))
        if size == 1:
            return cls()
        if device.type == "cuda":
            torch.cuda.set_device(device)
        store, rank, knows_earlier = meet(size)
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        try:
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
        except RuntimeError as error:
            refuse_lost_rank(error)
            raise
        return cls(rank, size, int(os.environ.get("LOCAL_RANK", 0)), knows_earlier)

    def leave(self) -> None:
        if self.size > 1 and dist.is_initialized():
            gc.collect()  # what still holds the process group, such as DDP in a cycle (training.train)
            dist.destroy_process_group()

    @property
    def is_rank_zero(self) -> bool:
        """True if this rank prints and writes for all."""
        return self.rank == 0

    def rank_zero_first(self) -> AbstractContextManager[None]:
        """Rank 0 runs the block first, however long it takes, then the others."""
        return self._first(self.is_rank_zero)

    def local_rank_zero_first(self) -> AbstractContextManager[None]:
        """Local rank 0 of each machine runs the block first, then the others: they find what it has made."""
        return self._first(not self.local_rank)

    @contextmanager
    def _first(self, is_first: bool) -> Iterator[None]:
        if self.size == 1:
            yield
            return
        patient = dist.new_group(backend="gloo", timeout=LONG_TIMEOUT)
        if not is_first:
            dist.barrier(patient)
        yield
        if is_first:
            dist.barrier(patient)
        dist.destroy_process_group(patient)

    def sum(self, *values: float) -> list[float]:
        """Each value summed over the ranks."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return total.tolist()

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in the order of the ranks."""
        if self.size == 1:
            return [value]
        encoded = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(lengths, torch.tensor([len(encoded)]))
        longest = max(int(length) for length in lengths)
        parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(parts, torch.cat([encoded, encoded.new_zeros(longest - len(encoded))]))
        return [json.loads(bytes(part[: int(length)].tolist())) for part, length in zip(parts, lengths)]

    def share(self, count: int) -> range:
        """Range of this rank's part of `count` items."""
        return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        return self.gather(value if self.is_rank_zero else None)[0]

    def broadcast_tensors(self, tensors: Tensors | None) -> dict[str, Tensor]:
        """Rank 0's tensors by name, on the CPU of every rank."""
        if self.size == 1:
            return dict(tensors or {})
        kinds = {
            name: [list(t.shape), str(t.dtype).removeprefix("torch.")] for name, t in (tensors or {}).items()
        }
        result = {}
        for name, (shape, dtype) in self.broadcast(kinds).items():
            tensor = (
                tensors[name].contiguous() if tensors else torch.empty(shape, dtype=getattr(torch, dtype))
            )
            dist.broadcast(tensor, src=0)
            result[name] = tensor
        return result


def refuse_lost_rank(error: Exception) -> None:
    """Raise a WorkError if the error only means that another rank is gone."""
    words = ("Connection closed by peer", "Connection reset by peer", "gloo/transport", "connectFullMesh")
    if isinstance(error, dist.DistError) or any(word in str(error) for word in words):
        reason = str(error).strip().split("\n")[0]
        raise WorkError(
            f"stopped because another rank is gone; see its own error message ({reason})"
        ) from None


def meet(size: int) -> tuple[dist.Store, int, bool]:
    """Wait until all ranks have joined. Returns the store that the ranks of this attempt share, the rank of
    this process, and whether this is rank 0 and knows of an earlier attempt of the job.
    """
    try:
        shared, rank, _ = next(dist.rendezvous("env://", timeout=MEETING_TIMEOUT))
    except ValueError:  # a variable is missing
        needed = ("RANK", "MASTER_ADDR", "MASTER_PORT")
        unset = " and ".join(name for name in needed if name not in os.environ)
        raise InputError(
            f"{unset} must be set where WORLD_SIZE is {size}; start several processes with torchrun, or "
            "unset WORLD_SIZE for one"
        ) from None
    except dist.DistError:
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise WorkError(
            f"stopped because rank 0 does not answer at MASTER_ADDR and MASTER_PORT, {address}"
        ) from None
    shared.set_timeout(MEETING_TIMEOUT)
    attempt = uuid4().hex if rank == 0 else _ask(shared, rank)
    store = dist.PrefixStore(attempt, shared)
    store.set(f"here/{rank}", "")
    if rank == 0:
        _answer(shared, attempt, store, size)
    try:
        store.wait(["complete"], MEETING_TIMEOUT)
    except dist.DistStoreError:
        raise _lost(_first_missing(store, size)) from None
    # Counted here: torchrun does not count attempts that begin because a machine came or went.
    key = "processes of rank 0"
    shared.add(key, int(rank == 0 and not _met))
    _met.append(attempt)
    return store, rank, rank == 0 and shared.add(key, 0) > 1


def _ask(shared: dist.Store, rank: int) -> str:
    """Request the prefix of this attempt from rank 0."""
    name = uuid4().hex
    shared.set(f"asks/{rank}", name)
    try:
        return shared.get(f"attempt of {name}").decode()
    except dist.DistStoreError:
        raise _lost(0) from None


def _answer(shared: dist.Store, attempt: str, store: dist.Store, size: int) -> None:
    """Answer each rank's request for the prefix until all have joined. A request may be left from a process
    that died: the one that replaces it uses another name.
    """
    answered: set[bytes] = set()
    end = time.monotonic() + MEETING_TIMEOUT.total_seconds()
    while not store.check([f"here/{rank}" for rank in range(size)]):
        if time.monotonic() > end:
            raise _lost(_first_missing(store, size))
        for rank in range(1, size):
            if shared.check([f"asks/{rank}"]) and (name := shared.get(f"asks/{rank}")) not in answered:
                shared.set(f"attempt of {name.decode()}", attempt)
                answered.add(name)
        time.sleep(_PAUSE)
    store.set("complete", "")


def _first_missing(store: dist.Store, size: int) -> int:
    return next(rank for rank in range(size) if not store.check([f"here/{rank}"]))


def _lost(rank: int) -> WorkError:
    seconds = int(MEETING_TIMEOUT.total_seconds())
    return WorkError(
        f"stopped because rank {rank} did not join within {seconds} seconds; see its own error message"
    )
