"""What the verbs share: how they speak, and how they read a number."""

import argparse
import os
import sys


def say(text: str) -> None:
    """A line on stderr; of several processes each says which it is."""
    rank = f"rank {os.environ['RANK']}: " if int(os.environ.get("WORLD_SIZE", 1)) > 1 else ""
    print(rank + text, file=sys.stderr, flush=True)


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    return _whole(text, 1)


def natural(text: str) -> int:
    """A whole number of at least 0, for argparse."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    number = int(text) if text.isdecimal() else -1
    if number < least:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, but is {text}")
    return number
