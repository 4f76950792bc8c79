""""""

import threading
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from transformer_mt.config.load import load_config
from transformer_mt.data.batches.batch import Rows, make_batch
from transformer_mt.data.batches.batching import (
    BatchPrefetcher,
    Mixture,
    TrainingBatches,
    batch_bounds,
    effective_weights,
    num_windows,
    plan_epoch,
    validation_batches,
)
from transformer_mt.data.batches.encoded_pairs import Column, EncodedPairs, row_kind, write_chunks
from transformer_mt.data.batches.packing import RowShape
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD
from transformer_mt.errors import InputError
from transformer_mt.preparation import prepare

MULTI30K = ROOT.parent / "shared" / "data" / "multi30k"


@pytest.fixture(scope="module")
def lengths():
    rng = np.random.default_rng(0)
    src = rng.integers(2, 40, 5000).astype(np.int32)
    return src, np.maximum(2, src + rng.integers(-4, 5, 5000)).astype(np.int32)


@pytest.fixture
def pairs(tmp_path: Path) -> EncodedPairs:
    rng = np.random.default_rng(1)
    rows = [
        (rng.integers(4, 50, rng.integers(1, 20)).tolist(), rng.integers(4, 50, rng.integers(1, 20)).tolist())
        for _ in range(300)
    ]
    write_chunks(
        tmp_path / "a.arrow", [(Column.of([src for src, _ in rows]), Column.of([tgt for _, tgt in rows]))]
    )
    return EncodedPairs([tmp_path / "a.arrow"])


def test_epochs_without_a_pair_are_passed_over(pairs):
    """A corpus of 300 pairs with a weight of 0.001 has a pair in every third epoch or so."""
    batches = TrainingBatches(Rows(pairs), 1000, seed=1, mixture=Mixture([300], [0.001], seed=1))
    epochs = []
    for _ in range(3):
        (batch,) = batches.next_update()
        assert len(batch.src) == 1
        epochs.append(batches.epoch)
    assert epochs == sorted(set(epochs)) and epochs[-1] >= 4


@pytest.mark.parametrize("budget", [40, 1000, 100_000])
def test_each_pair_once_within_the_budget(lengths, budget):
    src, tgt = lengths
    budget = max(budget, int(max(src.max(), tgt.max())))
    batches = plan_epoch(src, tgt, budget, seed=1, epoch=0)
    assert sorted(np.concatenate(batches).tolist()) == list(range(5000))
    assert all(len(rows) * max(src[rows].max(), tgt[rows].max()) <= budget for rows in batches)


def test_order_is_a_function_of_seed_and_epoch(lengths):
    def plan(seed, epoch):
        return [rows.tolist() for rows in plan_epoch(*lengths, 1000, seed, epoch)]

    assert plan(1, 0) == plan(1, 0)
    assert plan(1, 0) != plan(1, 1)
    assert plan(1, 0) != plan(2, 0)
    # Not only the order of the batches: who meets whom changes too.
    assert {frozenset(rows) for rows in plan(1, 0)} != {frozenset(rows) for rows in plan(1, 1)}


def only(batches):
    """The batch of the next update."""
    (batch,) = batches.next_update()
    return batch


def test_batches_made_ahead_are_the_same_and_their_place_is_that_of_those_handed_out(pairs):
    plain, plan = TrainingBatches(Rows(pairs), 200, seed=1), TrainingBatches(Rows(pairs), 200, seed=1)
    ahead, positions = BatchPrefetcher(plan, 2, torch.device("cpu")), []
    for _ in range(40):
        expected, batches = plain.next_update(2), ahead.next_update()
        assert [batch.src.tolist() for batch in batches] == [batch.src.tolist() for batch in expected]
        assert (ahead.state_dict(), ahead.epochs) == (plain.state_dict(), plain.epochs)
        positions.append((ahead.state_dict(), batches[0].src))
    assert plain.epoch >= 1
    for place, _ in positions[::-7]:  # back again and again, whatever was made ahead
        plain.load_state_dict(place)
        ahead.load_state_dict(place)
        assert ahead.epochs == plain.epochs
        assert torch.equal(ahead.next_update()[1].src, plain.next_update(2)[1].src)


def test_the_next_batches_are_made_while_nobody_asks(pairs):
    class Watched(TrainingBatches):
        def next_update(self, accumulate):
            made.release()
            return super().next_update(accumulate)

    plan, made = Watched(Rows(pairs), 200, seed=1), threading.Semaphore(0)
    ahead = BatchPrefetcher(plan, 1, torch.device("cpu"))
    assert not made.acquire(timeout=0.1), "before the run was restored, it does not know its place"
    ahead.next_update()
    assert made.acquire(timeout=10) and made.acquire(timeout=10)
    assert not made.acquire(timeout=0.1), "one update ahead is enough"


def test_what_goes_wrong_in_making_batches_is_told_where_they_are_asked_for(pairs):
    class Broken(Rows):
        def batch(self, *rows):
            return 1 / 0

    plan = TrainingBatches(Broken(pairs), 200, seed=1)
    with pytest.raises(ZeroDivisionError):
        BatchPrefetcher(plan, 1, torch.device("cpu")).next_update()


def test_a_batch_is_padded_and_framed():
    batch = make_batch([np.array([5, 6, 7]), np.array([8])], [np.array([9]), np.array([10, 11])])
    assert batch.src.tolist() == [[5, 6, 7, EOS], [8, EOS, PAD, PAD]]
    assert batch.src_mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.tgt_in.tolist() == [[BOS, 9, PAD], [BOS, 10, 11]]
    assert batch.tgt_out.tolist() == [[9, EOS, PAD], [10, 11, EOS]]
    assert batch.real.tolist() == [0, 1, 3, 4, 5]
    assert batch.num_tokens == 5


def test_ranks_share_out_the_batches_of_an_update(pairs):
    """Whatever the ranks, an update is of the same batches."""
    alone = TrainingBatches(Rows(pairs), 200, seed=1)
    ranks = [TrainingBatches(Rows(pairs), 200, seed=1, rank=rank, num_ranks=3) for rank in range(3)]
    for _ in range(20):
        expected = alone.next_update(accumulate=6)
        together = [
            batch for turn in zip(*(batches.next_update(accumulate=2) for batches in ranks)) for batch in turn
        ]
        assert [batch.src.tolist() for batch in together] == [batch.src.tolist() for batch in expected]
    assert {tuple(batches.state_dict().values()) for batches in [alone, *ranks]} == {
        tuple(alone.state_dict().values())
    }


def test_a_batch_is_split_into_the_same_sentences():
    lengths = np.random.default_rng(0).integers(1, 9, (11, 2))
    rows = [(np.full(src, 5), np.full(tgt, 6)) for src, tgt in lengths]
    batch = make_batch([src for src, _ in rows], [tgt for _, tgt in rows])
    assert batch.split(batch.num_positions) == [batch]
    for most in (1, 20, 50):
        parts = batch.split(most)
        assert all(part.num_positions <= most or len(part.src) == 1 for part in parts)
        assert torch.equal(torch.cat([part.tgt_out for part in parts]), batch.tgt_out)
        assert sum(part.num_tokens for part in parts) == batch.num_tokens
        assert all((part.tgt_out.flatten()[part.real] != PAD).all() for part in parts)
        assert not any(part.num_tokens or len(part.real) for part in batch.idle().split(most))


def test_validation_sees_every_pair_in_a_fixed_order(pairs):
    first, second = ([batch.src.tolist() for batch in validation_batches(Rows(pairs), 200)] for _ in range(2))
    assert first == second
    assert sum(map(len, first)) == len(pairs)


def test_epochs_count_with_fractions(pairs):
    batches = TrainingBatches(Rows(pairs), 200, seed=1)
    per_epoch = len(plan_epoch(pairs.lengths(0), pairs.lengths(1), 200, 1, 0))
    for _ in range(per_epoch):
        only(batches)
    assert batches.epochs == 1.0
    only(batches)
    assert 1.0 < batches.epochs < 1.1


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="needs Multi30k in ../shared/data/multi30k")
def test_nine_tenths_of_the_tokens_of_multi30k_are_real():
    """On both sides together, over an epoch, where sorting by one side alone leaves 0.6."""
    data = prepare(load_config(ROOT / "configs/multi30k_en_de.yaml", [f"data.hub={MULTI30K}"]))
    batches = TrainingBatches(Rows(data.train), 2048, seed=1)  # the smallest is the hardest to fill
    real = computed = 0
    while batches.epochs < 1:
        batch = only(batches)
        real += batch.num_tokens + int(batch.src_mask.sum())
        computed += batch.src.numel() + batch.tgt_in.numel()
    assert real / computed > 0.9


def rows_of(batches):
    """Each sentence of the batches, as the bytes of its source and target."""
    return [
        (src[mask].tolist(), tgt[tgt != PAD].tolist())
        for batch in batches
        for src, mask, tgt in zip(batch.src, batch.src_mask, batch.tgt_out)
        if batch.num_tokens
    ]


@pytest.mark.parametrize("num_ranks, batch_tokens", [(1, 60), (3, 60), (8, 10_000)])
def test_updates_are_the_same_on_any_number_of_ranks_whatever_a_device_holds(pairs, num_ranks, batch_tokens):
    def updates(num_ranks, batch_tokens):
        ranks = [
            TrainingBatches(Rows(pairs), batch_tokens, 1, rank, num_ranks, update_tokens=400)
            for rank in range(num_ranks)
        ]
        return [[rank.next_update() for rank in ranks] for _ in range(12)]

    expected = updates(1, 400)
    for (one,), ranks in zip(expected, updates(num_ranks, batch_tokens)):
        shares = [batch for rank in ranks for batch in rank]
        assert sorted(rows_of(shares)) == sorted(rows_of(one))
        assert sum(batch.num_tokens for batch in shares) == sum(batch.num_tokens for batch in one)
        assert all(batch.num_positions <= max(batch_tokens, 21) for batch in shares)
        assert all(rank for rank in ranks)  # each computes something, so that none waits in vain


def test_bounds_of_batches_are_those_of_the_plain_loop(lengths):
    """The vectorised plan takes as many sentences as the budget allows, one by one."""
    longest = np.maximum(*lengths)[np.random.default_rng(2).permutation(5000)]
    for budget in (40, 333, 5_000, 10**9):
        bounds, start, most = [], 0, 0
        for i, length in enumerate(longest.tolist()):
            most = max(most, length)
            if most * (i + 1 - start) > budget:
                bounds.append(i)
                start, most = i, length
        assert batch_bounds(longest, budget) == [bound for bound in bounds if bound]


class ManyPairs:
    """More pairs than 32 bits can number, all of three tokens; those of one block are looked at."""

    def __len__(self):
        return 3 << 31

    def lengths(self, side, rows):
        assert len(rows) <= 2**17
        return np.full(len(rows), 3, np.int32)


@pytest.mark.parametrize("shape", [None, RowShape(4, 128, 128)])
def test_rows_above_two_to_the_31_do_not_wrap(shape):
    blocks = 3 << 14  # of 2^17 rows
    mixture = Mixture([2**17] * blocks, [1.0] * blocks, seed=1, windows=blocks // 2)
    batches = TrainingBatches(Rows(ManyPairs()), 64, seed=1, mixture=mixture, shape=shape)
    for window in (0, blocks // 2 - 1):
        plan = [batch[:, 1] if shape else batch for batch in batches._plan(1, window)]
        used = [row for part in mixture.parts(1, window) for row in part]
        assert sorted(np.concatenate(plan).tolist()) == used and max(used) > 2**31
    assert row_kind(2**31) == np.int32 and row_kind(2**31 + 1) == np.int64


# Weights of corpora: which rows an epoch uses, and how often.


def test_weights_of_one_use_each_row_once_in_the_order_of_the_corpora():
    assert Mixture([3, 2], [1.0, 1.0], seed=1).rows(0) is None


@given(st.floats(0.01, 5.0), st.integers(1, 60), st.integers(1, 9))
def test_after_some_epochs_each_pair_was_used_as_often_as_its_weight_says(weight, size, epochs):
    mixture = Mixture([4, size], [1.0, weight], seed=3)
    rows = [mixture.rows(epoch) for epoch in range(epochs)]
    rows = [np.arange(4 + size) if row is None else row for row in rows]
    counts = Counter(np.concatenate(rows).tolist())
    assert all(counts[row] == epochs for row in range(4))
    uses = [counts[row] for row in range(4, 4 + size)]
    assert max(uses) - min(uses) <= 1
    assert sum(uses) == pytest.approx(weight * size * epochs, abs=1 + 1e-6 * size)


def test_an_epoch_depends_on_the_seed_and_its_number_alone():
    one, again = Mixture([50], [0.3], seed=1), Mixture([50], [0.3], seed=1)
    one.rows(0), one.rows(1)
    assert one.rows(7).tolist() == again.rows(7).tolist()
    assert one.rows(7).tolist() != Mixture([50], [0.3], seed=2).rows(7).tolist()


def test_temperature_raises_small_corpora():
    assert effective_weights([1.0, 1.0, 2.0], [100, 25, 100], 1.0) == [1.0, 1.0, 2.0]
    assert effective_weights([1.0, 1.0, 2.0], [100, 25, 100], 2.0) == [1.0, 2.0, 2.0]
    assert effective_weights([1.0, 1.0], [100, 25], 100.0)[1] == pytest.approx(4.0, rel=0.02)
    assert effective_weights([1.0, 1.0], [100, 0], 5.0) == [1.0, 0.0]


# Epochs of windows: each pair as often as promised, in an order that the seed and the position decide, and
# no more than two windows in memory.


BLOCKS, SIZE = 12, 100


@pytest.fixture
def window_pairs(tmp_path):
    """1,200 different pairs in twelve files, which are opened when they are needed."""
    rng = np.random.default_rng(1)
    paths = []
    for block in range(BLOCKS):
        rows = [[4 + block * SIZE + i, *rng.integers(4, 99, rng.integers(1, 30))] for i in range(SIZE)]
        paths.append(tmp_path / f"{block}.arrow")
        write_chunks(paths[-1], [(Column.of(rows), Column.of(rows))])
    return EncodedPairs(paths, [SIZE] * BLOCKS)


def batches_of(window_pairs, *ranks, weights=(1.0,) * BLOCKS, windows=4, packed=False, **options):
    mixture = Mixture([SIZE] * BLOCKS, weights, seed=1, windows=windows)
    shape = RowShape(4, 128, 128) if packed else None
    return TrainingBatches(Rows(window_pairs), 512, 1, *ranks, mixture=mixture, shape=shape, **options)


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
def test_an_epoch_has_each_pair_once_in_windows_of_blocks(window_pairs, packed):
    batches = batches_of(window_pairs, packed=packed)
    seen = []
    for _ in range(2):
        windows, _ = epoch_of(batches)
        batches.index = 0  # the batch that began the next epoch is taken again
        assert sorted(chain(*windows)) == list(range(4, 4 + BLOCKS * SIZE))
        blocks = [{(piece - 4) // SIZE for piece in window} for window in windows]
        assert [len(of) for of in blocks] == [3] * 4
        seen.append(blocks)
    assert seen[0] != seen[1]  # other blocks meet in each epoch


def test_weights_are_those_of_the_whole_corpus(window_pairs):
    weights = [1.0] * 6 + [2.5] * 3 + [0.5] * 3
    batches, counts = batches_of(window_pairs, weights=weights), Counter()
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
def test_a_position_is_reached_again(window_pairs, packed):
    straight = batches_of(window_pairs, packed=packed)
    made, places = [], [straight.state_dict()]
    for _ in range(150):
        made.append(straight.next_update()[0].tgt_out)
        places.append(straight.state_dict())
    assert {place["window"] for place in places} == {0, 1, 2, 3} and straight.epoch > 0
    fractions = []
    for number in range(0, 150, 13):
        resumed = batches_of(window_pairs, packed=packed)
        resumed.load_state_dict(places[number])
        fractions.append(resumed.epochs)
        assert torch.equal(resumed.next_update()[0].tgt_out, made[number])
    assert fractions == sorted(fractions) and fractions[0] == 0.0


def test_windows_smaller_than_a_block_are_passed_over(window_pairs):
    batches = batches_of(window_pairs, windows=40)
    windows, _ = epoch_of(batches)
    assert sorted(chain(*windows)) == list(range(4, 4 + BLOCKS * SIZE)) and len(windows) == BLOCKS


def test_no_more_than_two_windows_are_open(window_pairs):
    batches = batches_of(window_pairs)
    most = 0
    for _ in range(200):
        batches.next_update()
        batches.settle()
        most = max(most, len(window_pairs._files))
    assert batches.epoch > 0 and most == 6


def test_another_division_into_windows_is_refused(window_pairs):
    batches = batches_of(window_pairs)
    batches.next_update()
    with pytest.raises(
        InputError, match=r"this run began with 4 windows per epoch, but data.window_pairs .* give 3;"
    ):
        batches_of(window_pairs, windows=3).load_state_dict(batches.state_dict())
    before = {"epoch": 1, "index": 2}  # as runs wrote it before there were windows
    whole = batches_of(window_pairs, windows=1)
    whole.load_state_dict(before)
    assert (whole.epoch, whole.window, whole.index) == (1, 0, 2)


def test_windows_are_as_large_as_asked_and_of_a_thousand_batches():
    assert num_windows(16e6, 400e6, 16_000_000, 25_000) == 1
    assert num_windows(16e6 + 1, 400e6, 16_000_000, 25_000) == 2
    assert num_windows(1e9, 25e9, 16_000_000, 25_000) == 63
    assert num_windows(1e9, 25e9, 200_000, 400_000) == 62  # 403,000 window_pairs, of 1,008 batches
    assert num_windows(2e5, 5e6, 20_000, 25_000) == 1
