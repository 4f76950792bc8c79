"""The texts of `fill`, `complete` and `classify`."""

import argparse
import os
import sys
from collections.abc import Iterator

from transformer_mt.errors import InputError
from transformer_mt.text.lines import decoded_lines


def add_texts(parser: argparse.ArgumentParser) -> None:
    """MODEL, the texts and the device."""
    parser.add_argument("model", metavar="MODEL", help="a run's folder, such as runs/bert")
    parser.add_argument(
        "texts", metavar="TEXT", nargs="*", help="texts; default: the lines of standard input"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps")


def texts_of(arguments: argparse.Namespace) -> Iterator[str]:
    """The texts that were given, or the lines of standard input."""
    if arguments.texts:  # bytes that are not UTF-8 are read as U+FFFD
        return (os.fsencode(text).decode(errors="replace") for text in arguments.texts)
    if sys.stdin is None:
        raise InputError("standard input is closed; give TEXT")
    return decoded_lines(sys.stdin.buffer, "standard input")
