"""Word alignments in Pharaoh format: a line a pair, `0-0 1-2`, source and target words counted from 0."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from transformer_mt.errors import InputError
from transformer_mt.text.lines import read_lines

_LINK = re.compile(r"\d{1,6}-\d{1,6}")


def read_links(file: Path) -> Iterator[np.ndarray]:
    """(links, 2) of each line. InputError names a line that has something else."""
    for number, line in enumerate(read_lines(file), start=1):
        if not all(map(_LINK.fullmatch, line.split())):
            raise InputError(
                f"{file}: each line must have links such as 0-0 1-2 (source word, target word), but line "
                f"{number} is {line.strip()[:60]!r}"
            )
        yield np.array([link.split("-") for link in line.split()], np.int64).reshape(-1, 2)
