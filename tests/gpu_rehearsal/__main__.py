"""`python -m tests.gpu_rehearsal FILE`: a rehearsal in a process whose torch has a GPU without values."""

import sys

from tests.gpu_rehearsal import fake_gpu  # noqa: F401  before torch

if __name__ == "__main__":
    import pytest

    sys.exit(
        pytest.main(
            [sys.argv[1], "-o", "python_files=rehearse_*.py", "-p", "no:cacheprovider", *sys.argv[2:]]
        )
    )
