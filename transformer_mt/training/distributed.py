"""Several processes that train one model together, started by torchrun; one process alone is the same code.

Each rank computes its share of an update's batches; gradients are summed by DDP, or by FSDP2, which also shares out the
weights and the optimizer's state. Small facts travel between the processors as JSON.
"""

import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, NoReturn, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transformer_mt.checkpoint import Tensors
from transformer_mt.errors import WorkError

# A rank that fails before all have met is noticed by nobody.
_MEETING = timedelta(minutes=2)
# One that dies later is noticed at once; this is for one that lives and does not answer.
_SILENCE = timedelta(minutes=10)
# For those who wait while the first rank prepares data, or waits for its input, for as long as that takes.
PATIENCE = timedelta(days=7)


def become_torchrun(processes: int, words: Sequence[str]) -> NoReturn:
    """Go on as torchrun, which starts `transformer-mt WORDS` so many times on this machine."""
    # After a signal torchrun kills who has not ended in 30 seconds, but a validation, and then saving, may take longer.
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "600")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    os.execv(sys.executable, [*torchrun, "-m", "transformer_mt", *words])


class Ranks:
    """The processes of this training: how many, which one this is, and how they tell each other things."""

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0) -> None:
        self.rank, self.size, self.local_rank = rank, size, local_rank

    @classmethod
    def join(cls, device: torch.device, timeout: timedelta = _SILENCE) -> "Ranks":
        """Meet the other processes torchrun started; without torchrun, be alone. Later nobody waits longer than `timeout`."""
        size = int(os.environ.get("WORLD_SIZE", 1))
        if size == 1:
            return cls()
        if device.type == "cuda":
            torch.cuda.set_device(device)
        store, rank, _ = next(dist.rendezvous("env://", timeout=_MEETING))
        store.set(f"here/{rank}", "")
        try:
            store.wait([f"here/{each}" for each in range(size)], _MEETING)
        except dist.DistStoreError:
            missing = next(each for each in range(size) if not store.check([f"here/{each}"]))
            seconds = int(_MEETING.total_seconds())
            raise WorkError(
                f"stopped because rank {missing} did not come within {seconds} seconds; see what that one said"
            ) from None
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
        return cls(rank, size, int(os.environ.get("LOCAL_RANK", 0)))

    def leave(self) -> None:
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()

    @property
    def is_first(self) -> bool:
        """Whether this rank speaks and writes for all."""
        return self.rank == 0

    @contextmanager
    def first_here_first(self) -> Iterator[None]:
        """The first rank of each machine goes through the block, then its others: they find what it has made."""
        if self.size == 1:
            yield
            return
        patient = dist.new_group(backend="gloo", timeout=PATIENCE)
        if self.local_rank:
            dist.barrier(patient)
        yield
        if not self.local_rank:
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
        """Every rank's value, in the order of the ranks, for each of them."""
        if self.size == 1:
            return [value]
        mine = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(lengths, torch.tensor([len(mine)]))
        longest = max(int(length) for length in lengths)
        parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(parts, torch.cat([mine, mine.new_zeros(longest - len(mine))]))
        return [json.loads(bytes(part[: int(length)].tolist())) for part, length in zip(parts, lengths)]

    def from_first(self, value: Any) -> Any:
        """The first rank's value; what the others bring does not matter."""
        return self.gather(value if self.is_first else None)[0]

    def tensors_from_first(self, tensors: Tensors | None) -> dict[str, Tensor]:
        """The first rank's tensors by name, on the processor."""
        if self.size == 1:
            return dict(tensors or {})
        kinds = {name: [list(t.shape), str(t.dtype).removeprefix("torch.")] for name, t in (tensors or {}).items()}
        result = {}
        for name, (shape, dtype) in self.from_first(kinds).items():
            tensor = tensors[name].contiguous() if tensors else torch.empty(shape, dtype=getattr(torch, dtype))
            dist.broadcast(tensor, src=0)
            result[name] = tensor
        return result


def spread(
    objective: nn.Module, layers: list[nn.Module], parallel: str, ranks: Ranks, device: torch.device
) -> nn.Module:
    """The objective in the form in which its gradients are averaged over the ranks.

    `ddp` keeps everything on each rank; `fsdp` shares out the weights of each of `layers`, and of the rest together.
    """
    if parallel == "fsdp":
        from torch.distributed.fsdp import fully_shard  # slow to import, seldom used

        mesh = dist.init_device_mesh(device.type, (ranks.size,))
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(objective, mesh=mesh)
        return objective
    if ranks.size == 1:
        return objective
    # The buffers are tables that each rank makes by itself, and a validation may have made one in inference mode.
    devices = [device] if device.type == "cuda" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch 2.13 has another name for the option, 2.10 has not
        return DistributedDataParallel(objective, device_ids=devices, broadcast_buffers=False)


def gradients_stay(objective: nn.Module, last: bool) -> AbstractContextManager[object]:
    """Within it, gradients are only added up on this rank, unless this is the `last` batch of an update.

    FSDP2's are shared out after each batch: who takes it has no room for whole ones.
    """
    alone = isinstance(objective, DistributedDataParallel) and not last
    return cast(DistributedDataParallel, objective).no_sync() if alone else nullcontext()


def moves_in_step(objective: nn.Module) -> bool:
    """Whether ranks hand each other weights in each pass, so that all must make as many: FSDP2's do."""
    return hasattr(objective, "reshard")


def refuse_lost_rank(error: RuntimeError) -> None:
    """WorkError if all the error says is that another rank is gone."""
    words = ("Connection closed by peer", "Connection reset by peer", "gloo/transport")
    if isinstance(error, dist.DistError) or any(each in str(error) for each in words):
        reason = str(error).strip().split("\n")[0]
        raise WorkError(f"stopped because another rank is gone; see what that one said ({reason})") from None
