"""Folders of earlier experiments, which are moved aside, never deleted."""

from collections.abc import Sequence
from pathlib import Path

from transformer_mt.errors import InputError
from transformer_mt.files import set_aside
from transformer_mt.messages import say


def start_over(folder: Path, inputs: Sequence[Path]) -> None:
    """Move an old folder aside. InputError if one of the inputs of what follows is in it."""
    if not folder.is_dir():
        return
    for path in inputs:
        if path.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"{path}: must be outside {folder}, which is moved aside; move it elsewhere first"
            )
    say(f"the old folder is now {set_aside(folder)}")
