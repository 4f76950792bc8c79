"""How the processes of a training find each other, also after torchrun has started them again.

torchrun keeps one store for all its attempts, and with it the addresses that dead processes left there. So
each attempt has a prefix of its own. Rank 0 chooses it; each other rank requests it under a new random name,
so that no answer is that of an earlier attempt.
"""

import os
import time
from datetime import timedelta
from uuid import uuid4

import torch.distributed as dist

from transformer_mt.errors import InputError, WorkError

# A rank that fails before the rendezvous is not noticed otherwise.
TIMEOUT = timedelta(minutes=2)
_PAUSE = 0.02
_met: list[str] = []
"""The attempts that this process took part in: a script may train several times."""


def meet(size: int) -> tuple[dist.Store, int, bool]:
    """A store that all ranks of this attempt share, this one's rank, and whether rank 0 knows of an earlier
    attempt of the job. Returns when all are there.
    """
    try:
        shared, rank, _ = next(dist.rendezvous("env://", timeout=TIMEOUT))
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
    shared.set_timeout(TIMEOUT)
    attempt = uuid4().hex if rank == 0 else _ask(shared, rank)
    store = dist.PrefixStore(attempt, shared)
    store.set(f"here/{rank}", "")
    if rank == 0:
        _answer(shared, attempt, store, size)
    try:
        store.wait(["complete"], TIMEOUT)
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
    end = time.monotonic() + TIMEOUT.total_seconds()
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
    seconds = int(TIMEOUT.total_seconds())
    return WorkError(
        f"stopped because rank {rank} did not join within {seconds} seconds; see its own error message"
    )
