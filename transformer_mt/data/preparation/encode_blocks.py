"""The sample that the vocabulary is learnt from, and the kept rows as ids, block by block."""

import hashlib
import json
import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, compress, islice, repeat
from typing import Any

import numpy as np
import pyarrow

from transformer_mt.config import Config, DataConfig
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.corpora.held_out import AnySet
from transformer_mt.corpora.seen_sentences import KeySet, Sentences
from transformer_mt.data.batches.encoded_pairs import Chunk, Column, write_chunks
from transformer_mt.data.cleaning_rules import KEPT, READ, REASONS, length_reason
from transformer_mt.data.preparation.clean import Clean, Reasons, TextBlocks, lone_side
from transformer_mt.data.preparation.store import Store, sizes_of, text_bytes, text_columns
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.messages import say
from transformer_mt.processes import usable_cores
from transformer_mt.settings.corpus_keys import label_piece
from transformer_mt.settings.objectives import objective_class
from transformer_mt.text.hashes import sentence_key
from transformer_mt.text.lines import Pair
from transformer_mt.text.sentences import has_several_sentences

_PAIRS = 10_000

Encoded = tuple[Chunk, np.ndarray]
"""The ids of the pairs that fit, and the drop reasons of all as indices into REASONS."""


def encoded_chunks(
    pairs: Iterable[Pair], tokenizer: Tokenizer, data: DataConfig, corpus: AnySet, threads: int | None = None
) -> Iterator[Encoded]:
    """The pairs of a corpus as ids, each side after its control tokens. InputError for a label that
    `data.labels` has not.

    Threads suffice: SentencePiece releases Python's lock.
    """
    target_piece = data.target_piece(data.languages_of(corpus))
    before = [data.pieces_before(corpus), [] if target_piece is None else [target_piece]]
    labels = {label: tokenizer.control_id(label_piece(label)) for label in data.labels}
    encode = partial(
        _encoded,
        tokenizer=tokenizer,
        data=data,
        control_tokens=[[tokenizer.control_id(piece) for piece in pieces] for pieces in before],
        labels=labels if objective_class(data.objective_of(corpus)).has_labels else None,
    )
    pairs, workers = iter(pairs), threads or usable_cores()
    waiting: deque[Future[Encoded]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        while rows := list(islice(pairs, _PAIRS)):
            waiting.append(pool.submit(encode, rows))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _encoded(
    pairs: list[Pair],
    tokenizer: Tokenizer,
    data: DataConfig,
    control_tokens: Sequence[list[int]],
    labels: Mapping[str, int] | None,
) -> Encoded:
    reasons = np.empty(len(pairs), np.uint8)
    kept: tuple[list[list[int]], list[list[int]]] = [], []
    src_rows = tokenizer.encode_src([src for src, _ in pairs], num_threads=1)
    if labels is None:
        tgt_rows = tokenizer.encode_tgt([tgt for _, tgt in pairs], num_threads=1)
        max_ratio = data.max_length_ratio
    else:
        tgt_rows = [[_label(tgt.strip(), labels)] for _, tgt in pairs]
        max_ratio = math.inf
    for row, sides in enumerate(zip(src_rows, tgt_rows)):
        src, tgt = (control + ids if ids else ids for control, ids in zip(control_tokens, sides))
        reason = length_reason(len(src), len(tgt), data.max_length, max_ratio)
        reasons[row] = REASONS.index(reason or KEPT)
        if reason is None:
            kept[0].append(src)
            kept[1].append(tgt)
    return (Column.of(kept[0]), Column.of(kept[1])), reasons


def _label(label: str, labels: Mapping[str, int]) -> int:
    if label not in labels:
        raise InputError(f"a label must be one of data.labels ({', '.join(labels)}), but is {label!r}")
    return labels[label]


def file_of(
    chunks: Iterable[Chunk], tokenizer: Tokenizer, data: DataConfig, corpus: AnySet, is_kept: np.ndarray
) -> tuple[bytes, str]:
    """A file of pairs of a corpus, and a fingerprint of what is learnt from them; `is_kept` marks
    these pairs among all rows that were read.
    """
    with pyarrow.BufferOutputStream() as file:
        fingerprint = write_chunks(file, chunks, tokenizer.num_ids, is_kept)
        content = file.getvalue().to_pybytes()
    if data.has_next_sentences and data.objective_of(corpus) == "masked_lm":  # which row follows which
        fingerprint = hashlib.sha256(fingerprint.encode() + np.packbits(is_kept).tobytes()).hexdigest()
    return content, fingerprint


ROWS = 500_000
"""A larger sample takes long and changes the vocabulary little."""

_SENTENCES = 20_000  # enough to estimate the share of sources with several sentences


class Sample:
    """The stage that samples rows which no rule has dropped, at a fixed stride and at most ROWS in all."""

    what = "sampling"

    def __init__(self, clean: Clean, text: TextBlocks, reasons: Reasons, store: Store) -> None:
        self._clean, self._text, self._reasons, self._store = clean, text, reasons, store
        self.sizes = text.sizes
        self._before = np.cumsum([0, *clean.num_keys()])
        self._stride = 1
        while -(-self._before[-1] // self._stride) > ROWS:
            self._stride *= 2

    def result(self, number: int) -> str:
        return f"sample/{number:05d}.arrow"

    def run(self, number: int) -> None:
        kept = REASONS.index(KEPT)
        rows = np.flatnonzero(self._clean.reasons(number) == kept)
        rows = rows[-self._before[number] % self._stride :: self._stride]
        pairs, is_kept = self._text.pairs(number), self._reasons.of(number) == kept
        src, tgt = ([pairs[row][side] for row in rows.tolist()] for side in (0, 1))
        columns = {"src": src, "tgt": tgt, "is_kept": is_kept[rows].tolist()}
        self._store.write(self.result(number), text_bytes(columns))

    def blocks(self) -> "Sampled":
        """The corpus of each block and its columns: src, tgt, and is_kept, whether a pair is trained on."""
        numbers = range(len(self._text))
        return [(self._text.entry(n), text_columns(self._store.read(self.result(n)))) for n in numbers]


Sampled = list[tuple[Corpus, dict[str, list[Any]]]]


def learnt_tokenizer(config: Config, sampled: Sampled) -> Tokenizer:
    """The vocabulary of the sampled pairs that are trained on."""
    data = config.data
    names = ", ".join(entry.title for entry in data.entries)
    say(f"learning {config.tokenizer.vocab_size:,} {config.tokenizer.kind} tokens from {names}")
    learnt_from = list[Pair]()
    for entry, columns in sampled:
        once = config.tokenizer.shared and entry.is_text  # both sides of plain text are the same
        tgt = repeat("") if once else columns["tgt"]
        learnt_from += compress(zip(columns["src"], tgt), columns["is_kept"])
    if not learnt_from:
        raise InputError(f"{names}: no training pair is left after cleaning; all are empty or held out")
    return Tokenizer.train(learnt_from, config.tokenizer, data.control_pieces)


def several_sentences(config: Config, sampled: Sampled) -> float:
    """The share of the sampled sources with more than one sentence."""
    data = config.data
    blocks = [columns["src"] for entry, columns in sampled if not (data.directions and entry.is_text)]
    sources = list(chain.from_iterable(blocks))
    sources = sources[:: -(-len(sources) // _SENTENCES) or 1]
    return sum(has_several_sentences(src, data.source_lang) for src in sources) / max(1, len(sources))


@dataclass(frozen=True)
class EncodedBlock:
    """A block of the training data."""

    corpus: int
    """The number of its corpus."""
    counts: dict[str, int]
    """Rows by drop reason, `read` and `kept` included."""
    source_tokens: int
    """Tokens of the kept pairs, end-of-sentence counted."""
    target_tokens: int
    longest: int
    """Tokens of the longest side of a pair, end-of-sentence counted."""
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
    """The name of the file with the ids of a block."""
    return f"train-{block:05d}.arrow"


def _seen_file(block: int, kind: str) -> str:
    return f"seen/{block:05d}.{kind}"


def _seen(entry: Corpus, keys: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Group sentence keys as in the fields of `Sentences`; `keys` are (pairs, 2): sources and targets."""
    src, tgt = np.concatenate([np.empty((0, 2), np.uint64), *keys]).T
    if entry.is_text:
        return {"trained": src[:0], "alone": src}
    if not objective_class(entry.objective).translates:
        return {"trained": src, "alone": src[:0]}
    if lone_side(entry) is None:
        return {"trained": np.concatenate([src, tgt]), "alone": src[:0]}
    return {"trained": src, "alone": tgt}
