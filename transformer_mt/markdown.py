"""Tables and notes in Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any

from tabulate import tabulate


def table(rows: Sequence[Sequence[Any]], head: Sequence[str]) -> str:
    """A Markdown table; the cells stay as they are."""
    return tabulate(rows, headers=head, tablefmt="github", disable_numparse=True)


def with_names(facts: Iterable[tuple[str, str]]) -> str:
    """The facts of several names, from (name, fact): the fact alone where all share it, else each fact with
    its names.
    """
    whose: dict[str, dict[str, None]] = {}
    for name, fact in facts:
        whose.setdefault(fact, {})[name] = None
    if len(whose) == 1:
        return next(iter(whose))
    return "; ".join(f"{fact} ({', '.join(names)})" for fact, names in whose.items())
