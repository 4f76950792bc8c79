"""The paths of CUDA, run without a GPU: each rehearsal in a process of its own, as torch is told of its GPU
before it is imported.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("c++")), reason="needs a C++ compiler, for guard.cpp"
)
@pytest.mark.parametrize("file", sorted(HERE.glob("rehearse_*.py")), ids=lambda file: file.stem)
def test_rehearsal(file):
    command = [sys.executable, "-m", "tests.gpu_rehearsal", str(file)]
    found = subprocess.run(command, cwd=HERE.parent.parent, capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, f"{' '.join(command)}\n{found.stdout[-8000:]}\n{found.stderr[-2000:]}"
