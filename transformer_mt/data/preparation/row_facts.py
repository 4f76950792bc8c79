"""Facts about the rows of prepared data, kept in the cache."""

import hashlib
import json
import secrets
from collections.abc import Iterator
from typing import Protocol

import pyarrow

from transformer_mt.cache import cache_root
from transformer_mt.data.batches.encoded_pairs import Chunk, EncodedPairs, write_chunks
from transformer_mt.files import fsync, write_text


class Finder(Protocol):
    """Something that finds a fact about each row."""

    def identity(self) -> list[object]:
        """Facts that change when what is found does, apart from the rows."""
        ...

    def chunks(self) -> Iterator[Chunk]:
        """The facts, a pair of lists of numbers a row."""
        ...


def kept_facts(name: str, finder: Finder, fingerprint: str, rows: int) -> tuple[EncodedPairs, str]:
    """The facts about so many rows whose data have this fingerprint, and a fingerprint of the facts. They are
    found unless the cache has them undamaged; processes that do so at once find the same.
    """
    key = hashlib.sha256(json.dumps([fingerprint, *finder.identity()]).encode()).hexdigest()[:24]
    folder = cache_root() / f"{name}-{key}"
    arrow, mark = folder / f"{name}.arrow", folder / "fingerprint"
    try:
        facts, digest = EncodedPairs([arrow]), mark.read_text(encoding="utf-8")
        if len(facts) == rows:
            return facts, digest
    except (OSError, ValueError, pyarrow.ArrowException):
        pass  # not there, or damaged
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{name}.{secrets.token_hex(4)}.part"
    try:
        digest = write_chunks(part, finder.chunks())
        fsync(part)
        part.replace(arrow)
    finally:
        part.unlink(missing_ok=True)
    write_text(mark, digest)
    return EncodedPairs([arrow]), digest
