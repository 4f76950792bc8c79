"""How fast this machine trains a config, before its data is prepared: some updates on random ids."""

import time
from collections.abc import Iterator, Sequence

import numpy as np

from transformer_mt.config import Config
from transformer_mt.config.resolve import with_packing
from transformer_mt.data.batches.batch import Batch, make_batch, make_packed_batch
from transformer_mt.data.batches.encoded_pairs import Column
from transformer_mt.data.batches.packing import RowShape, packed_rows
from transformer_mt.device import choose_device, choose_precision, keep_freed_memory, use_device
from transformer_mt.model.build_model import build_model
from transformer_mt.update.adaptation import adapt
from transformer_mt.update.build_updater import build_trial_updater

# Updates that fill caches; then the most updates that are measured, and the most seconds they may take.
_WARM, _MOST, _SECONDS = 2, 20, 12.0
_IDS = 4  # the special ones before the others


def seconds_per_update(
    config: Config,
    vocab_size: int,
    lengths: Sequence[tuple[int, int]],
    tokens: int = 0,
    micro_batch_tokens: int = 0,
) -> float:
    """The median time of an update of `config` on this machine, of `tokens` padded tokens if given, computed
    in micro-batches if these are given. `lengths` are those of a sample of the pairs, in pieces of source and
    target with end-of-sentence.
    """
    train = config.train
    device = choose_device(train.device)
    use_device(device)
    if device.type == "cpu":
        keep_freed_memory()
    dtype = choose_precision(train.precision, device)
    shared = config.tokenizer.shared
    model = build_model(config.model, vocab_size, vocab_size, shared, config.data.max_length)
    adapt(model, train)
    model = model.to(device)
    config = with_packing(config, device.type == "cuda")
    updater = build_trial_updater(config, model, device, dtype, micro_batch_tokens, may_capture=True)
    times: list[float] = []
    for batch in typical_batches(config, vocab_size, lengths, tokens):
        begun = time.perf_counter()
        updater.update([batch], 1e-6).result()
        times.append(time.perf_counter() - begun)
        if len(times) == _WARM + _MOST or sum(times[_WARM:]) >= _SECONDS:
            break
    return float(np.median(times[_WARM:] or times))


def typical_batches(
    config: Config, vocab_size: int, lengths: Sequence[tuple[int, int]], tokens: int = 0
) -> Iterator[Batch]:
    """Endless batches of `tokens` padded tokens, by default those of an update: random ids, packed, or in
    pairs of similar length from anywhere in the corpus, as in training, which drops those that are too long.
    """
    most = config.data.max_length
    kept = [pair for pair in lengths if max(pair) <= most] or [(most, most)]
    budget = tokens or config.train.update_tokens or int(config.train.batch_tokens) * config.train.accumulate
    generator, ordered = np.random.default_rng(1), sorted(kept, key=max)
    enough = 1 + int(2 * budget / np.mean([max(pair) for pair in kept]))
    src, tgt = np.array(kept).T
    shape = RowShape.of(budget, src, tgt, int(np.maximum(src, tgt).max()))
    while config.train.packed is True:
        src, tgt = np.array(kept)[generator.integers(0, len(kept), enough)].T
        row = packed_rows(src, tgt, shape)
        used = np.argsort(row, kind="stable")[: np.count_nonzero(row < shape.rows)]
        columns = [
            Column.of([generator.integers(_IDS, vocab_size, length - 1) for length in side[used]])
            for side in (src, tgt)
        ]
        yield make_packed_batch(columns[0], columns[1], row[used], shape)
    while True:
        first = int(generator.integers(0, len(ordered)))
        size = max(1, budget // max(ordered[first]))
        rows = [ordered[first - i] for i in range(min(first + 1, size))]
        rows = (rows * size)[:size]
        sides = [[generator.integers(_IDS, vocab_size, row[side] - 1) for row in rows] for side in (0, 1)]
        yield make_batch(sides[0], sides[1])
