"""Several processes that train one model together, started by torchrun; one process alone is the same code.

Each rank computes its share of an update's batches; gradients are summed by DDP, or by FSDP2, which also
shares out the weights and the optimizer's state. Small values travel between the CPUs as JSON:
torch's all_gather_object would run code that other processes send.
"""

import json
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transformer_mt.checkpoint import Tensors
from transformer_mt.config import TrainConfig
from transformer_mt.cpu import usable_cores
from transformer_mt.errors import WorkError
from transformer_mt.messages import say
from transformer_mt.training.parallel.rendezvous import meet

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
        """Join the process group torchrun started; without torchrun a group of one. `timeout` is that of
        later collectives.
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


def wrap_distributed(
    objective: nn.Module, layers: list[nn.Module], train: TrainConfig, ranks: Ranks, device: torch.device
) -> nn.Module:
    """The objective wrapped so that gradients are averaged over the ranks.

    `ddp` replicates everything on each rank; `fsdp` shards the weights of each of `layers`, and the rest
    together.
    """
    if train.parallel == "fsdp":
        # Slow to import, seldom used
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = dist.init_device_mesh(device.type, (ranks.size,))
        for layer in layers:
            if train.fsdp_weights == "bf16":
                # The norms, and what is between the layers, compute in float32, as in one process.
                norms: list[nn.Module] = [
                    module for module in layer.modules() if isinstance(module, nn.LayerNorm)
                ]
                fully_shard(norms, mesh=mesh)
                policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
                fully_shard(layer, mesh=mesh, mp_policy=policy)
            else:
                fully_shard(layer, mesh=mesh)
        fully_shard(objective, mesh=mesh)
        return objective
    if ranks.size == 1:
        return objective
    # Buffers are not broadcast: each rank computes its own tables, one perhaps in inference mode during a
    # validation.
    devices = [device] if device.type == "cuda" else None
    with warnings.catch_warnings():
        # Torch 2.13 deprecates the option; its successor still broadcasts buffers once, at the start.
        warnings.simplefilter("ignore", FutureWarning)
        return DistributedDataParallel(
            objective, device_ids=devices, broadcast_buffers=False, gradient_as_bucket_view=True
        )


def no_grad_sync(objective: nn.Module, last: bool) -> AbstractContextManager[object]:
    """Within it, gradients are only accumulated on this rank, unless this is the `last` batch of an update.

    FSDP2 reduces and shards gradients after each batch: full ones may not fit the memory.
    """
    alone = isinstance(objective, DistributedDataParallel) and not last
    return cast(DistributedDataParallel, objective).no_sync() if alone else nullcontext()


def needs_equal_passes(objective: nn.Module) -> bool:
    """True if all ranks must make the same number of forward passes: FSDP2 gathers weights in each."""
    return hasattr(objective, "reshard")


def refuse_lost_rank(error: Exception) -> None:
    """Raise a WorkError if the error only means that another rank is gone."""
    words = ("Connection closed by peer", "Connection reset by peer", "gloo/transport", "connectFullMesh")
    if isinstance(error, dist.DistError) or any(word in str(error) for word in words):
        reason = str(error).strip().split("\n")[0]
        raise WorkError(
            f"stopped because another rank is gone; see its own error message ({reason})"
        ) from None
