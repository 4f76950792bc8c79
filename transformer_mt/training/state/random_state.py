"""The states of the random generators, of every rank, as tensors."""

import torch
from torch import Tensor

from transformer_mt.ranks import Ranks


def random_states(device: torch.device, ranks: Ranks) -> dict[str, Tensor]:
    """`cpu`, and `cuda` or `mps` on such a device; those of rank r > 0 are `cpu.r` and `cuda.r`. A collective
    operation.
    """
    own_states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        own_states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        own_states["mps"] = torch.mps.get_rng_state()
    states = ranks.gather({kind: bytes(state.tolist()).hex() for kind, state in own_states.items()})
    return {
        _name(kind, rank): torch.frombuffer(bytearray.fromhex(state), dtype=torch.uint8)
        for rank, of_rank in enumerate(states)
        for kind, state in of_rank.items()
    }


def restore_random_states(states: dict[str, Tensor], device: torch.device, ranks: Ranks, seed: int) -> None:
    """Restore this rank's states. A rank without saved states (the checkpoint had fewer ranks) is seeded with
    `seed` and its rank.
    """
    if (cpu := states.get(_name("cpu", ranks.rank))) is None:
        torch.manual_seed(seed + ranks.rank)
        return
    torch.set_rng_state(cpu)
    of_device = states.get(_name(device.type, ranks.rank))
    if device.type == "cuda" and of_device is not None:
        torch.cuda.set_rng_state(of_device, device)
    elif device.type == "mps" and of_device is not None:
        torch.mps.set_rng_state(of_device)


def _name(kind: str, rank: int) -> str:
    return f"{kind}.{rank}" if rank else kind
