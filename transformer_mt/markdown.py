"""Tables in Markdown."""

from collections.abc import Sequence
from typing import Any

from tabulate import tabulate


def table(rows: Sequence[Sequence[Any]], head: Sequence[str]) -> str:
    """A Markdown table; the cells stay as they are."""
    return tabulate(rows, headers=head, tablefmt="github", disable_numparse=True)
