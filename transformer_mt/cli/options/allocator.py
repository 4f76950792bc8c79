"""A faster memory allocator, which must be loaded when a process starts."""

import ctypes.util
import os
import sys
from contextlib import suppress

_NAMES = ("tcmalloc_minimal", "tcmalloc")


def start_with_tcmalloc() -> None:
    """Replace this process by the same command with tcmalloc, where the system has it (Debian:
    libtcmalloc-minimal4). Returns if it is so already, or cannot be.
    """
    before = os.environ.get("LD_PRELOAD", "")
    if sys.platform != "linux" or "tcmalloc" in before or "WORLD_SIZE" in os.environ:
        return
    words = sys.argv[1:]
    if sys.orig_argv[len(sys.orig_argv) - len(words) :] != words:
        return  # the command is part of another program
    library = next(filter(None, map(ctypes.util.find_library, _NAMES)), None)
    if library is None:
        return
    os.environ["LD_PRELOAD"] = f"{library} {before}".strip()
    with suppress(OSError):
        os.execv(sys.executable, sys.orig_argv)
    os.environ["LD_PRELOAD"] = before
