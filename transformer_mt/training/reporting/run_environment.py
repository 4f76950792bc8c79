"""The versions and the machine that results depend on besides the config."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy
import sentencepiece
import torch

from transformer_mt.cpu import cpu_name, usable_cores
from transformer_mt.version import __version__


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, commit, machine, and its GPU where that is the device."""
    return {
        "transformer_mt": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "sentencepiece": sentencepiece.__version__,
        "numpy": numpy.__version__,
        "processor": cpu_name(),
        "cores": usable_cores(),
        "allocator": "tcmalloc" if "tcmalloc" in os.environ.get("LD_PRELOAD", "") else "system",
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    }


def _commit() -> str | None:
    """The commit of the repository this file belongs to; None where it was installed."""
    if not _git("ls-files", Path(__file__).name):
        return None
    return _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None


def _git(*words: str) -> str:
    try:
        return subprocess.run(
            ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
