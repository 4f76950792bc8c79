"""Epochs of windows: each pair as often as promised, in an order that the seed and the position decide, and
no more than two windows in memory.
"""

from collections import Counter
from itertools import chain

import numpy as np
import pytest
import torch

from transformer_mt.data.batches.batch import Rows
from transformer_mt.data.batches.batching import Mixture, TrainingBatches, num_windows
from transformer_mt.data.batches.encoded_pairs import Column, EncodedPairs, write_chunks
from transformer_mt.data.batches.packing import RowShape
from transformer_mt.errors import InputError

BLOCKS, SIZE = 12, 100


@pytest.fixture
def pairs(tmp_path):
    """1,200 different pairs in twelve files, which are opened when they are needed."""
    rng = np.random.default_rng(1)
    paths = []
    for block in range(BLOCKS):
        rows = [[4 + block * SIZE + i, *rng.integers(4, 99, rng.integers(1, 30))] for i in range(SIZE)]
        paths.append(tmp_path / f"{block}.arrow")
        write_chunks(paths[-1], [(Column.of(rows), Column.of(rows))])
    return EncodedPairs(paths, [SIZE] * BLOCKS)


def batches_of(pairs, *ranks, weights=(1.0,) * BLOCKS, windows=4, packed=False, **options):
    mixture = Mixture([SIZE] * BLOCKS, weights, seed=1, windows=windows)
    shape = RowShape(4, 128, 128) if packed else None
    return TrainingBatches(Rows(pairs), 512, 1, *ranks, mixture=mixture, shape=shape, **options)


def first_pieces(batch):
    """The first piece of each target, which says which pair it is."""
    if batch.packing is None:
        return batch.tgt_out[:, 0].tolist()
    return batch.tgt_out[(batch.packing.tgt_positions == 0) & (batch.packing.tgt_sentences > 0)].tolist()


def epoch_of(batches):
    """The pairs of each window of the present epoch."""
    windows, epoch = {}, batches.epoch
    while True:
        (batch,) = batches.next_update()
        if batches.epoch != epoch:
            return [windows[n] for n in sorted(windows)], batch
        windows.setdefault(batches.window, []).extend(first_pieces(batch))


@pytest.mark.parametrize("packed", [False, True])
def test_an_epoch_has_each_pair_once_in_windows_of_blocks(pairs, packed):
    batches = batches_of(pairs, packed=packed)
    seen = []
    for _ in range(2):
        windows, _ = epoch_of(batches)
        batches.index = 0  # the batch that began the next epoch is taken again
        assert sorted(chain(*windows)) == list(range(4, 4 + BLOCKS * SIZE))
        blocks = [{(piece - 4) // SIZE for piece in window} for window in windows]
        assert [len(of) for of in blocks] == [3] * 4
        seen.append(blocks)
    assert seen[0] != seen[1]  # other blocks meet in each epoch


def test_weights_are_those_of_the_whole_corpus(pairs):
    weights = [1.0] * 6 + [2.5] * 3 + [0.5] * 3
    batches, counts = batches_of(pairs, weights=weights), Counter()
    sizes = []
    for _ in range(2):
        windows, _ = epoch_of(batches)
        batches.index = 0
        sizes += [len(window) for window in windows]
        for window in windows:
            counts.update(window)
    by_block = [{counts[4 + block * SIZE + i] for i in range(SIZE)} for block in range(BLOCKS)]
    assert by_block == [{2}] * 6 + [{5}] * 3 + [{1}] * 3
    assert max(sizes) < 2.5 * min(sizes)


@pytest.mark.parametrize("packed", [False, True])
def test_a_position_is_reached_again(pairs, packed):
    straight = batches_of(pairs, packed=packed)
    made, places = [], [straight.state_dict()]
    for _ in range(150):
        made.append(straight.next_update()[0].tgt_out)
        places.append(straight.state_dict())
    assert {place["window"] for place in places} == {0, 1, 2, 3} and straight.epoch > 0
    fractions = []
    for number in range(0, 150, 13):
        resumed = batches_of(pairs, packed=packed)
        resumed.load_state_dict(places[number])
        fractions.append(resumed.epochs)
        assert torch.equal(resumed.next_update()[0].tgt_out, made[number])
    assert fractions == sorted(fractions) and fractions[0] == 0.0


def test_windows_smaller_than_a_block_are_passed_over(pairs):
    batches = batches_of(pairs, windows=40)
    windows, _ = epoch_of(batches)
    assert sorted(chain(*windows)) == list(range(4, 4 + BLOCKS * SIZE)) and len(windows) == BLOCKS


def test_ranks_share_the_batches(pairs):
    alone, ranks = batches_of(pairs), [batches_of(pairs, rank, 3) for rank in range(3)]
    for _ in range(50):
        together = [rank.next_update()[0].tgt_out for rank in ranks]
        assert all(torch.equal(batch, alone.next_update()[0].tgt_out) for batch in together)
        assert all(rank.state_dict() == alone.state_dict() for rank in ranks)


def test_no_more_than_two_windows_are_open(pairs):
    batches = batches_of(pairs)
    most = 0
    for _ in range(200):
        batches.next_update()
        batches.settle()
        most = max(most, len(pairs._files))
    assert batches.epoch > 0 and most == 6


def test_another_division_into_windows_is_refused(pairs):
    batches = batches_of(pairs)
    batches.next_update()
    with pytest.raises(
        InputError, match=r"this run began with 4 windows per epoch, but data.window_pairs .* give 3;"
    ):
        batches_of(pairs, windows=3).load_state_dict(batches.state_dict())
    before = {"epoch": 1, "index": 2}  # as runs wrote it before there were windows
    whole = batches_of(pairs, windows=1)
    whole.load_state_dict(before)
    assert (whole.epoch, whole.window, whole.index) == (1, 0, 2)


def test_windows_are_as_large_as_asked_and_of_a_thousand_batches():
    assert num_windows(16e6, 400e6, 16_000_000, 25_000) == 1
    assert num_windows(16e6 + 1, 400e6, 16_000_000, 25_000) == 2
    assert num_windows(1e9, 25e9, 16_000_000, 25_000) == 63
    assert num_windows(1e9, 25e9, 200_000, 400_000) == 62  # 403,000 pairs, of 1,008 batches
    assert num_windows(2e5, 5e6, 20_000, 25_000) == 1
