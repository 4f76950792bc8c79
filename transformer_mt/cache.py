"""The cache folder. Everything in it can be rebuilt."""

import os
from pathlib import Path


def cache_root() -> Path:
    """$TRANSFORMER_MT_CACHE, or transformer_mt in the user's cache folder. May be deleted at any time between
    runs.
    """
    if root := os.environ.get("TRANSFORMER_MT_CACHE"):
        return Path(root)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transformer_mt"
