"""Work of companions with a run that is trained, such as its export."""

import os
from pathlib import Path

from transformer_mt.companion import hooks
from transformer_mt.runs.folder import RunFolder


def after_training(folder: str | Path, is_asked: bool = False) -> None:
    """Let companions do what they do after a training, on rank 0 alone. With `is_asked` a command needs what
    they make.
    """
    if os.environ.get("RANK", "0") == "0":
        for work in hooks("after_training"):
            work(RunFolder(folder), is_asked)
