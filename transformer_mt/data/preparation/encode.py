"""Text pairs into piece ids, by threads, in order."""

import hashlib
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice

import numpy as np
import pyarrow

from transformer_mt.config import DataConfig
from transformer_mt.corpora.held_out import AnySet
from transformer_mt.cpu import usable_cores
from transformer_mt.data.batches.encoded_pairs import Chunk, Column, write_chunks
from transformer_mt.data.cleaning.drop_reasons import KEPT, REASONS, length_reason
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.settings.objective import label_piece
from transformer_mt.text.pair import Pair

_PAIRS = 10_000

Encoded = tuple[Chunk, np.ndarray]
"""The ids of the pairs that fit, and the drop reasons of all as indices into REASONS."""


def encoded_chunks(
    pairs: Iterable[Pair], tokenizer: Tokenizer, data: DataConfig, corpus: AnySet, threads: int | None = None
) -> Iterator[Encoded]:
    """The pairs of a corpus as ids, each side after its control pieces. InputError for a label that
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
        before=[[tokenizer.control_id(piece) for piece in pieces] for pieces in before],
        labels=labels if data.objective_of(corpus) == "classification" else None,
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
    before: Sequence[list[int]],
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
        src, tgt = (control + ids if ids else ids for control, ids in zip(before, sides))
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
    """A file of pairs of a corpus, and a fingerprint of what is learnt from them; `is_kept` tells which
    of the rows that were read they are.
    """
    with pyarrow.BufferOutputStream() as file:
        fingerprint = write_chunks(file, chunks, tokenizer.num_ids, is_kept)
        content = file.getvalue().to_pybytes()
    if data.has_next_sentences and data.objective_of(corpus) == "masked_lm":  # which row follows which
        fingerprint = hashlib.sha256(fingerprint.encode() + np.packbits(is_kept).tobytes()).hexdigest()
    return content, fingerprint
