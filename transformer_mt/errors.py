"""The two errors a user meets. Each is one sentence: what must be, what is, what to do."""


class InputError(ValueError):
    """The command line, the YAML or the data is wrong: nothing was done. Exit status 2."""


class WorkError(RuntimeError):
    """The request was valid, but the work failed. Exit status 1."""


class Notice(UserWarning):
    """A warning for the user; the work continues. The command line prints it as one line."""
