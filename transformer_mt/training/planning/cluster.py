"""GPUs that a training can be planned for: what their makers state, not what was measured."""

import re
from dataclasses import dataclass

from transformer_mt.errors import InputError

UTILISATION = 0.4
"""Share of the stated arithmetic that a training is assumed to use."""
SECONDS_PER_OPERATION = 1e-5
"""Least time that torch is assumed to need for starting an operation, however small; `train.compile` needs
less.
"""
DEVICES_PER_MACHINE = 8


@dataclass(frozen=True)
class Device:
    """One GPU, as its maker describes it."""

    name: str
    memory_gb: float
    tflops: float
    """Dense matrix products of bfloat16 (float16 where it has no bfloat16), in 10^12 operations a second."""
    link_gb: float
    """10^9 bytes a second to the others of its machine, in each direction."""
    network_gb: float
    """10^9 bytes a second between machines, in each direction, of a whole machine."""


DEVICES = [
    Device("B200", 180, 2250, 900, 400),
    Device("H200", 141, 989, 450, 400),
    Device("H100", 80, 989, 450, 400),
    Device("A100", 80, 312, 300, 200),
    Device("L40S", 48, 362, 32, 12.5),
    Device("A10", 24, 125, 32, 12.5),
    Device("L4", 24, 121, 32, 12.5),
    Device("RTX4090", 24, 165, 32, 1.25),
    Device("RTX3090", 24, 71, 32, 1.25),
    Device("T4", 16, 65, 16, 1.25),
]


@dataclass(frozen=True)
class Cluster:
    """`count` devices of one kind, in machines of eight."""

    count: int
    device: Device

    @property
    def bandwidth(self) -> float:
        """Bytes a second at the narrowest point of a ring through all devices."""
        alone = self.count <= DEVICES_PER_MACHINE
        return 1e9 * (self.device.link_gb if alone else self.device.network_gb)


def cluster_named(name: str) -> Cluster:
    """The cluster of a name such as `8xH100` or `L4`; InputError if there is none of that name."""
    match = re.fullmatch(r"(?:([1-9]\d{0,4})x)?(\w+)", name, re.IGNORECASE)
    known = {device.name.lower(): device for device in DEVICES}
    if match is None or match[2].lower() not in known:
        names = ", ".join(device.name for device in DEVICES)
        raise InputError(
            f"the machine must be NUMBERxDEVICE, such as 8xH100, with one of {names}, but is {name}"
        )
    return Cluster(int(match[1] or 1), known[match[2].lower()])
