"""The errors a user meets, each one sentence: what must be, what is, what to do; and advice for errors of the
operating system.
"""

import difflib
import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Setting:
    """A setting in an error's text: a parameter, or a key of the YAML by its dotted path.

    The library shows it as `key` or `key=value`. The command line shows the flag that sets it.
    """

    key: str
    value: Any = None

    def __str__(self) -> str:
        return f"`{self.key}`" if self.value is None else f"`{self.key}={self.value}`"


class UserError(Exception):
    """An error whose text names settings: InputError(Setting("n_best"), " must be at least 1, but is 0")."""

    def __init__(self, *parts: str | Setting) -> None:
        super().__init__(*parts)
        self.parts = parts

    def text(self, name_of: Callable[[Setting], str] = str) -> str:
        """The sentence, with each setting named by `name_of`."""
        return "".join(part if isinstance(part, str) else name_of(part) for part in self.parts)

    def __str__(self) -> str:
        return self.text()


class InputError(UserError, ValueError):
    """The command line, the YAML or the data is wrong. Exit status 2."""


class WorkError(UserError, RuntimeError):
    """The request was valid, but the work failed. Exit status 1."""


ADVICE = {
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or write to another disk",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "close other programs, as the system has too many open files",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space of your quota",
    errno.EIO: "check the disk",
    errno.EACCES: "check its rights",
    errno.EROFS: "write to another disk",
    errno.EPERM: "check its rights, or name another path",
    errno.ENOENT: "create its folder first, or check the path",
    errno.EISDIR: "name a file in it",
    errno.ENOTEMPTY: "let one command at a time write there",
    errno.EEXIST: "let one command at a time write there",
}
"""Advice for errors of the system."""


def advice_on(error: BaseException | None) -> str:
    """The advice for an error of the system, or for one that was raised from it."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return ADVICE.get((error and error.errno) or 0, "free some space or check the path")


def nearest(word: str, words: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The word that was meant: one with the same letters, or else the most like it. None if none is near."""
    words = list(words)
    slips = [other for other in words if sorted(other) == sorted(word)]
    return next(iter(slips or difflib.get_close_matches(word, words, n=1, cutoff=cutoff)), None)


class Interrupted(Exception):
    """A training was stopped by a signal, and everything is saved."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number
