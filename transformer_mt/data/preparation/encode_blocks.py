"""The kept rows as piece ids, block by block."""

import hashlib
import json
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import compress, islice

import numpy as np

from transformer_mt.config import DataConfig
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.corpora.seen_sentences import Sentences
from transformer_mt.data.batches.encoded_pairs import Chunk
from transformer_mt.data.cleaning.drop_reasons import KEPT, READ, REASONS
from transformer_mt.data.preparation.encode import encoded_chunks, file_of
from transformer_mt.data.preparation.reasons import Reasons
from transformer_mt.data.preparation.split import TextBlocks
from transformer_mt.data.preparation.store import Store, sizes_of
from transformer_mt.data.preparation.training_pairs import lone_side
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.text.hashes import sentence_key
from transformer_mt.text.key_set import KeySet


@dataclass(frozen=True)
class EncodedBlock:
    """A block of the training data."""

    corpus: int
    """The number of its corpus."""
    counts: dict[str, int]
    """Rows by drop reason, `read` and `kept` included."""
    source_tokens: int
    """Pieces of the kept pairs, end-of-sentence counted."""
    target_tokens: int
    longest: int
    """Pieces of the longest side of a pair, end-of-sentence counted."""
    fingerprint: str
    """A hash of the ids."""
    sha256: str
    """A hash of the file."""

    @property
    def rows(self) -> int:
        """Pairs that are trained on."""
        return self.counts.get(KEPT, 0)


class EncodeBlocks:
    """The stage that writes the training data."""

    what = "encoding"

    def __init__(
        self, data: DataConfig, text: TextBlocks, reasons: Reasons, tokenizer: Tokenizer, store: Store
    ) -> None:
        self._data, self._text, self._reasons = data, text, reasons
        self._tokenizer, self._store = tokenizer, store
        self.sizes = text.sizes

    def result(self, number: int) -> str:
        return f"train-{number:05d}.json"

    def run(self, number: int) -> None:
        entry, reasons = self._text.entry(number), self._reasons.of(number)
        kept = REASONS.index(KEPT)
        pairs = list(compress(self._text.pairs(number), reasons == kept))
        chunks, of_lengths, keys = list[Chunk](), list[np.ndarray](), list[np.ndarray]()
        threads, rest = 1 if len(self._text) > 1 else None, iter(pairs)
        for chunk, of_chunk in encoded_chunks(pairs, self._tokenizer, self._data, entry, threads):
            fitting = compress(islice(rest, len(of_chunk)), of_chunk == kept)
            sides = [sentence_key(side) for pair in fitting for side in pair]
            keys.append(np.array(sides, np.uint64).reshape(-1, 2))
            chunks.append(chunk)
            of_lengths.append(of_chunk)
        reasons[reasons == kept] = np.concatenate([np.zeros(0, np.uint8), *of_lengths])
        counts = Counter(dict(zip(REASONS, np.bincount(reasons, minlength=len(REASONS)).tolist())))
        counts[READ] = len(reasons)
        content, fingerprint = file_of(chunks, self._tokenizer, self._data, entry, reasons == kept)
        self._store.write(train_file(number), content)
        for kind, known in _seen(entry, keys).items():
            self._store.write(_seen_file(number, kind), known.tobytes())
        of_chunks = (np.stack([src.lengths, tgt.lengths]) + 1 for src, tgt in chunks)
        lengths = np.concatenate([np.zeros((2, 0), np.int32), *of_chunks], axis=1)
        src_tokens, tgt_tokens = lengths.sum(axis=1, dtype=np.int64).tolist()
        longest = int(lengths.max(initial=1))
        sha256, corpus = hashlib.sha256(content).hexdigest(), self._text.corpus(number)
        block = EncodedBlock(corpus, dict(+counts), src_tokens, tgt_tokens, longest, fingerprint, sha256)
        self._store.write(self.result(number), json.dumps(asdict(block)).encode())

    def block(self, number: int) -> EncodedBlock:
        """The description of a block that is done."""
        return EncodedBlock(**json.loads(self._store.read(self.result(number))))

    def trained_sentences(self) -> Sentences:
        """The sentences of all blocks."""
        return Sentences(self._keys("trained"), self._keys("alone"))

    def _keys(self, kind: str) -> KeySet:
        names = [_seen_file(number, kind) for number in range(len(self.sizes))]
        arrays = (np.frombuffer(self._store.read(name), np.uint64) for name in names)
        return KeySet.of_arrays(arrays, sum(sizes_of(self._store, names)) // 8)


def train_file(block: int) -> str:
    """The file of its ids."""
    return f"train-{block:05d}.arrow"


def _seen_file(block: int, kind: str) -> str:
    return f"seen/{block:05d}.{kind}"


def _seen(entry: Corpus, keys: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Group sentence keys as in the fields of `Sentences`; `keys` are (pairs, 2): sources and targets."""
    src, tgt = np.concatenate([np.empty((0, 2), np.uint64), *keys]).T
    if entry.is_text:
        return {"trained": src[:0], "alone": src}
    if entry.objective != "translation":
        return {"trained": src, "alone": src[:0]}
    if lone_side(entry) is None:
        return {"trained": np.concatenate([src, tgt]), "alone": src[:0]}
    return {"trained": src, "alone": tgt}
