"""A rehearsal in a process of its own, because the GPU must be registered before torch is imported."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def rehearse(what):
    """Run the tests of rehearse_WHAT.py with a GPU that has no values."""
    if not (shutil.which("g++") or shutil.which("c++")):
        pytest.skip("needs a C++ compiler, for guard.cpp")
    command = [sys.executable, "-m", "tests.gpu_rehearsal", str(HERE / f"rehearse_{what}.py")]
    found = subprocess.run(command, cwd=HERE.parent.parent, capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, f"{' '.join(command)}\n{found.stdout[-8000:]}\n{found.stderr[-2000:]}"
