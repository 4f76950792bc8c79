"""Documents as lines: a blank line ends one."""

from collections.abc import Iterable, Iterator, Sequence


def numbered_by_blanks(are_blank: Iterable[bool]) -> Iterator[int]:
    """0 for the first line, and one more after each blank one."""
    number = 0
    for is_blank in are_blank:
        yield number
        number += is_blank


def documents_of(lines: Sequence[str]) -> list[int]:
    """The number of each line's document."""
    return list(numbered_by_blanks(not line.strip() for line in lines))


def end_of_document(lines: Sequence[str], most: int) -> list[str]:
    """The last lines, at most so many, after the last blank one."""
    last = list(lines[max(0, len(lines) - most) :])
    return last[max((i + 1 for i, line in enumerate(last) if not line.strip()), default=0) :]
