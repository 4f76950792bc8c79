"""The function `train` for Python programs."""

from pathlib import Path

from transformer_mt.config import Config
from transformer_mt.training import loop


def train(config: Config, out: str | Path | None = None, fresh: bool = False) -> Path:
    """Train `config` in its folder, resuming from its newest checkpoint if there is one. Returns the folder.

    Raises InputError before any work, WorkError when the work fails, Interrupted after a signal. With several
    ranks, a process must end after InputError or WorkError: its state differs from its peers'.
    """
    return loop.train(config, out, fresh)
