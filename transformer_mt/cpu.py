"""The CPU: its name, the cores of this process, and how its threads wait for one another."""

import os
import platform
from pathlib import Path

# Iterations in which a thread of libgomp that waits for others occupies its core; then it sleeps. By default
# it is some milliseconds, in which no other program can use the core.
_SPINS = "1000"


def wait_without_spinning() -> None:
    """Let OpenMP's threads sleep soon while they wait, unless the user chose how they do. It works before
    torch is imported.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = _SPINS


def cpu_name() -> str:
    """The name of the CPU, such as AMD EPYC 9R14."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n"):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Number of cores this process may use: fewer than the machine has, in a container or under taskset."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_exact_int8_products(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """True if CTranslate2's int8 products do not overflow: False for an AMD CPU without VNNI. On Intel's it
    uses MKL, whose products are exact. True where the CPU is not known.
    """
    try:
        words = set(cpuinfo.read_text(encoding="utf-8").split())
    except OSError:
        return True
    return "AuthenticAMD" not in words or "avx2" not in words or bool({"avx512_vnni", "avx_vnni"} & words)
