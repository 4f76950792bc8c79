"""Text pairs into piece ids, by threads, in order."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import numpy as np

from transformer_mt.config import DataConfig
from transformer_mt.cpu import usable_cores
from transformer_mt.data.batches.encoded_pairs import Chunk, Column
from transformer_mt.data.cleaning import drop_reasons
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.settings.objective import label_piece
from transformer_mt.text.hashes import sentence_key
from transformer_mt.text.pair import Pair

_PAIRS = 10_000


def encoded_chunks(
    pairs: Iterable[Pair],
    tokenizer: Tokenizer,
    data: DataConfig,
    counts: Counter[str],
    pieces: Sequence[str] = (),
    target_piece: str | None = None,
    has_labels: bool = False,
    keys: list[np.ndarray] | None = None,
    threads: int | None = None,
) -> Iterator[Chunk]:
    """The pairs that fit, as ids, each source after the control pieces and each target after its own; drop
    reasons are counted, and `keys` get the (pairs, 2) keys of both sides. With `has_labels` each target is
    one of `data.labels`, and InputError if it is not.

    Threads suffice: SentencePiece releases Python's lock.
    """
    before = [tokenizer.control_id(piece) for piece in pieces]
    before_tgt = [] if target_piece is None else [tokenizer.control_id(target_piece)]
    labels = (
        {label: tokenizer.control_id(label_piece(label)) for label in data.labels} if has_labels else None
    )
    pairs, workers = iter(pairs), threads or usable_cores()
    waiting: deque[Future[tuple[Chunk, Counter[str], list[Pair]]]] = deque()

    def first() -> Chunk:
        chunk, reasons, kept = waiting.popleft().result()
        counts.update(reasons)
        if keys is not None:
            sides = [[sentence_key(side) for side in pair] for pair in kept]
            keys.append(np.array(sides, np.uint64).reshape(-1, 2))
        return chunk

    with ThreadPoolExecutor(workers) as pool:
        while rows := list(islice(pairs, _PAIRS)):
            waiting.append(pool.submit(_encode, rows, tokenizer, data, before, before_tgt, labels))
            if len(waiting) > 2 * workers:
                yield first()
        while waiting:
            yield first()


def _encode(
    pairs: list[Pair],
    tokenizer: Tokenizer,
    data: DataConfig,
    before: list[int],
    before_tgt: list[int],
    labels: Mapping[str, int] | None,
) -> tuple[Chunk, Counter[str], list[Pair]]:
    """The ids of the pairs that fit, the drop reasons of all, and the pairs that fit."""
    counts: Counter[str] = Counter()
    kept: list[Pair] = []
    src_ids, tgt_ids = list[list[int]](), list[list[int]]()
    src_rows = tokenizer.encode_src([src for src, _ in pairs], num_threads=1)
    if labels is None:
        tgt_rows = tokenizer.encode_tgt([tgt for _, tgt in pairs], num_threads=1)
        max_ratio = data.max_length_ratio
    else:
        tgt_rows = [[_label(tgt.strip(), labels)] for _, tgt in pairs]
        max_ratio = math.inf
    for pair, src, tgt in zip(pairs, src_rows, tgt_rows):
        src = before + src if before and src else src
        tgt = before_tgt + tgt if before_tgt and tgt else tgt
        length_reason = drop_reasons.length_reason(len(src), len(tgt), data.max_length, max_ratio)
        counts[length_reason or drop_reasons.KEPT] += 1
        if length_reason is None:
            kept.append(pair)
            src_ids.append(src)
            tgt_ids.append(tgt)
    return (Column.of(src_ids), Column.of(tgt_ids)), counts, kept


def _label(label: str, labels: Mapping[str, int]) -> int:
    if label not in labels:
        raise InputError(f"a label must be one of data.labels ({', '.join(labels)}), but is {label!r}")
    return labels[label]
