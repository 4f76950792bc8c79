"""The two errors a user meets. Each is one sentence: what must be, what is, what to do."""


class InputError(ValueError):
    """The command line, the YAML or the data is wrong: nothing was done. Exit status 2."""


class WorkError(RuntimeError):
    """The work was well asked for but failed on the way. Exit status 1."""
