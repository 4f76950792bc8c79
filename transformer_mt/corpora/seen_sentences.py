"""Hashes of texts, and sets of them that fit the memory."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from transformer_mt.corpora.corpus import EvaluationSentence
from transformer_mt.files import write_bytes
from transformer_mt.text.hashes import sentence_key, splitmix64

MOST_EXACT = 40_000_000
"""Keys that are kept whole, 8 bytes each: both sides of 20 million pairs."""
_BITS_OF_A_KEY, _PLACES = 16, 8
FILTER_ERROR = 0.0006
"""The false positive rate of a filter: (1 - exp(-8/16))^8."""
_AT_ONCE = 2**18


@dataclass(frozen=True)
class KeySet:
    """Keys as `sentence_key` gives them."""

    exact: np.ndarray
    """In order, each once (uint64)."""
    filters: tuple[np.ndarray, ...] = ()
    """Bloom filters (1970): the bits of each key's places are set (uint8)."""

    @classmethod
    def of(cls, keys: Iterable[int]) -> "KeySet":
        """The set of these keys."""
        array = np.fromiter(keys, np.uint64)
        return cls.of_arrays([array], len(array))

    @classmethod
    def of_arrays(cls, arrays: Iterable[np.ndarray], count: int, most_exact: int = MOST_EXACT) -> "KeySet":
        """The set of the `count` keys in all arrays. If they are more than `most_exact`, it is a filter that
        is filled from one array at a time.
        """
        if count > most_exact:
            return cls(_NOTHING, (_filter(arrays, count),))
        keys = np.sort(np.concatenate([_NOTHING, *arrays]))
        return cls(
            keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
        )  # np.unique took 30 times as long

    def __or__(self, other: "KeySet") -> "KeySet":
        """The keys of both."""
        exact = KeySet.of_arrays((self.exact, other.exact), len(self.exact) + len(other.exact))
        filters = (*self.filters, *other.filters, *exact.filters)
        known = {hashlib.sha256(bits.data).digest(): bits for bits in filters}
        return KeySet(exact.exact, tuple(known.values()))

    def has(self, keys: Sequence[int] | np.ndarray) -> np.ndarray:
        """For each key whether it is in the set."""
        wanted = np.asarray(keys, np.uint64)
        result = np.zeros(len(wanted), bool)
        if len(self.exact):
            places = np.searchsorted(self.exact, wanted).clip(max=len(self.exact) - 1)
            result |= self.exact[places] == wanted
        for bits in self.filters:
            places = _places(wanted, 8 * len(bits))
            result |= (bits[places >> 3] >> (places & 7).astype(np.uint8) & 1).all(axis=0)
        return result

    @property
    def is_empty(self) -> bool:
        return not (len(self.exact) or self.filters)


_NOTHING = np.empty(0, np.uint64)
NO_KEYS = KeySet(_NOTHING)


def _filter(arrays: Iterable[np.ndarray], count: int) -> np.ndarray:
    bits = np.zeros(-(-count * _BITS_OF_A_KEY // 8), np.uint8)
    for keys in arrays:
        for begin in range(0, len(keys), _AT_ONCE):
            places = np.sort(_places(np.asarray(keys[begin : begin + _AT_ONCE]), 8 * len(bits)), axis=None)
            byte, bit = places >> 3, np.uint8(1) << (places & 7).astype(np.uint8)
            first = np.flatnonzero(np.append(True, byte[1:] != byte[:-1])[: len(byte)])
            # np.bitwise_or.at took three times as long.
            bits[byte[first]] |= np.bitwise_or.reduceat(bit, first)
    return bits


def _places(keys: np.ndarray, size: int) -> np.ndarray:
    """The bits (8, K) of K keys in a Bloom filter of `size` bits (Kirsch and Mitzenmacher 2006)."""
    second = splitmix64(keys) | np.uint64(1)
    steps = np.arange(_PLACES, dtype=np.uint64)[:, None]
    return ((keys + steps * second) % np.uint64(size)).astype(np.int64)


@dataclass(frozen=True)
class Sentences:
    """Keys of sentences, by what was done with them."""

    trained: KeySet = NO_KEYS
    """Both sides of training pairs."""
    alone: KeySet = NO_KEYS
    """Training texts without their pair: plain text, and the targets of pairs whose source a model wrote."""
    scored: KeySet = NO_KEYS
    """Both sides of validation and test pairs."""
    validated: KeySet = NO_KEYS
    """Sources of validation pairs, which chose the checkpoint."""

    @property
    def fingerprint(self) -> str:
        """A hash of the keys of the training."""
        whole = hashlib.sha256()
        for keys in (self.trained, self.alone):
            for array in _arrays(keys):
                whole.update(array.data)
        return whole.hexdigest()[:24]

    @property
    def is_empty(self) -> bool:
        return all(getattr(self, field.name).is_empty for field in fields(self))

    def __or__(self, other: "Sentences") -> "Sentences":
        return Sentences(*(getattr(self, f.name) | getattr(other, f.name) for f in fields(self)))

    def has_trained(self, texts: Sequence[str]) -> np.ndarray:
        """For each text whether it was a side of a training pair, or a training text alone."""
        keys = [sentence_key(text) for text in texts]
        return self.trained.has(keys) | self.alone.has(keys)

    def knows(self, sentences: Sequence[EvaluationSentence]) -> np.ndarray:
        """For each sentence whether its source or one of its references was trained on, on any side."""
        known = self.has_trained([src for src, _ in sentences])
        for number, (_, references) in enumerate(sentences):
            known[number] |= self.has_trained([text for text in references if text.strip()]).any()
        return known


NOTHING_SEEN = Sentences()


@dataclass(frozen=True)
class SeenSentences:
    """The record of a run."""

    own: Sentences
    """The sentences of its own training."""
    inherited: Sentences = NOTHING_SEEN
    """The sentences of the models that the run was made from, and of the models behind those."""
    is_complete: bool = True
    """False where one of those models has recorded nothing."""

    @property
    def both(self) -> Sentences:
        return self.own | self.inherited

    @classmethod
    def inherited_from(cls, records: Sequence["SeenSentences | None"]) -> "SeenSentences":
        """The record of a run that was made of models with these records, before its own training."""
        known = [record for record in records if record is not None]
        both = reduce(or_, (record.both for record in known), NOTHING_SEEN)
        return cls(NOTHING_SEEN, both, all(record is not None and record.is_complete for record in records))

    @classmethod
    def read(cls, file: Path) -> "SeenSentences | None":
        """The record in the file; None if the run has not recorded it."""
        try:
            facts, tensors = _mapped(file)
        except (OSError, SafetensorError):
            return None
        parts = {name: _sentences(tensors, f"{name}.") for name in ("own", "inherited")}
        return cls(**parts, is_complete=facts.get("is_complete") == "true")

    def write(self, file: Path) -> None:
        tensors = [
            (f"{part}.{field.name}.{number}", array)
            for part in ("own", "inherited")
            for field in fields(Sentences)
            for number, array in enumerate(_arrays(getattr(getattr(self, part), field.name)))
        ]
        tensors.sort(key=lambda tensor: -tensor[1].itemsize)  # aligned to their item sizes
        facts: dict[str, Any] = {"__metadata__": {"is_complete": json.dumps(self.is_complete)}}
        end = 0
        for name, array in tensors:
            begin, end = end, end + array.nbytes
            facts[name] = {
                "dtype": f"U{8 * array.itemsize}", "shape": [len(array)], "data_offsets": [begin, end]
            }  # fmt: skip
        head = json.dumps(facts).encode()
        head += b" " * (-len(head) % 8)
        # Write the file ourselves: safetensors' function would copy gigabytes in memory twice.
        write_bytes(file, len(head).to_bytes(8, "little"), head, *(array.data for _, array in tensors))


def _mapped(file: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Metadata and memory-mapped tensors of a file: only the parts that are accessed are read."""
    with safe_open(file, framework="numpy") as saved:  # raises if the file is damaged
        facts, names = saved.metadata() or {}, list(saved.keys())
    content = np.memmap(file, np.uint8, "r")
    begin = 8 + int(content[:8].view("<u8")[0])
    head, tensors = json.loads(content[8:begin].tobytes()), {}
    for name in names:
        part = slice(*(begin + offset for offset in head[name]["data_offsets"]))
        tensors[name] = content[part].view(f"<u{int(head[name]['dtype'][1:]) // 8}")
    return facts, tensors


def _arrays(keys: KeySet) -> list[np.ndarray]:
    return [keys.exact, *keys.filters]


def _sentences(tensors: dict[str, np.ndarray], prefix: str) -> Sentences:
    sets = {}
    for field in fields(Sentences):
        begin = f"{prefix}{field.name}."
        arrays = [tensors[name] for name in sorted(tensors) if name.startswith(begin)]
        sets[field.name] = KeySet(arrays[0], tuple(arrays[1:])) if arrays else NO_KEYS
    return Sentences(**sets)


def keys_of(texts: Iterable[str]) -> KeySet:
    """Keys of the texts that are not blank."""
    return KeySet.of(sentence_key(text) for text in texts if text.strip())
