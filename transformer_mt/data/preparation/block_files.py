"""The blocks of the training pairs as files of this machine, each checked before it is used."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from transformer_mt.data.batches.encoded_pairs import EncodedPairs
from transformer_mt.data.preparation.encode_blocks import EncodedBlock, train_file
from transformer_mt.data.preparation.store import LocalStore, Store
from transformer_mt.errors import WorkError

_CHECKED_AT_ONCE = 2**31
"""Bytes: their check takes two seconds."""


class BlockFiles:
    """The files in `folder`; they are fetched from the store where that is elsewhere."""

    def __init__(self, store: Store, folder: Path, blocks: Sequence[EncodedBlock]) -> None:
        self._store, self._blocks = store, blocks
        self._is_here = isinstance(store, LocalStore)
        where = Path(store.location) if self._is_here else folder
        self._paths = [where / train_file(number) for number in range(len(blocks))]

    def open(self) -> EncodedPairs:
        """The pairs. ValueError or FileNotFoundError now for a block that is damaged or missing, as far as
        looking takes no time; else WorkError when it is used.
        """
        sizes = [block.rows for block in self._blocks]
        if not self._is_here:
            return EncodedPairs(self._paths, sizes, self._fetch, self._release)
        if sum(path.stat().st_size for path in self._paths) > _CHECKED_AT_ONCE:
            return EncodedPairs(self._paths, sizes, self._check)
        for number, path in enumerate(self._paths):
            if not self._is_whole(number):
                raise ValueError(f"{path.name} is not as it was written")
        return EncodedPairs(self._paths, sizes)

    def _is_whole(self, number: int) -> bool:
        with self._paths[number].open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self._blocks[number].sha256

    def _check(self, number: int) -> None:
        """WorkError if the file is damaged or cannot be read."""
        path = self._paths[number]
        try:
            is_whole = self._is_whole(number)
        except OSError as error:
            raise WorkError(f"{path}: cannot be read: {error}") from None
        if not is_whole:
            raise WorkError(
                f"{path.name} must be as it was written, but is not; remove {self._store.location}, and "
                "prepare again"
            )

    def _fetch(self, number: int) -> None:
        path = self._paths[number]
        with suppress(FileNotFoundError):
            if self._is_whole(number):
                return
        try:
            self._store.fetch(path.name, path)
        except OSError as error:
            raise WorkError(f"{path}: cannot be fetched: {error}; start again: it resumes") from None
        self._check(number)

    def _release(self, number: int) -> None:
        self._paths[number].unlink(missing_ok=True)
