"""Help with a preparation that another process leads, while this one waits for it."""

import threading
from contextlib import suppress
from pathlib import Path

import pyarrow

from transformer_mt.config import Config
from transformer_mt.data.preparation.first_pass import read_first_pass
from transformer_mt.data.preparation.second_pass import ShardEncoder
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError, WorkError

_SECONDS = 0.2  # between two looks at whether there is something to do


class ShardHelper:
    """A thread that encodes shards, from when the first pass is done until the end of the `with` block.

    It prints nothing and ignores errors: the leading process gets the same ones and reports them.
    """

    def __init__(self, config: Config, folder: Path) -> None:
        """`folder` is the one in which the data is prepared."""
        self._config, self._folder = config, folder
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="encoding", daemon=True)

    def __enter__(self) -> "ShardHelper":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(InputError, WorkError, OSError, ValueError, pyarrow.ArrowException):
            while (first := read_first_pass(self._folder)) is None:
                if self._ended.wait(_SECONDS):
                    return
            encoder = ShardEncoder(self._config, self._folder, Tokenizer.load(self._folder), first)
            for number in range(len(encoder.marks)):
                if self._ended.is_set():
                    return
                encoder.encode(number, wait=False, stop=self._ended.is_set)
