import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import ROOT
from transformer_mt.config.load import load_config
from transformer_mt.data.batches.batch import Rows, make_batch
from transformer_mt.data.batches.batching import (
    BatchPrefetcher,
    Mixture,
    TrainingBatches,
    batch_bounds,
    plan_epoch,
    validation_batches,
)
from transformer_mt.data.batches.encoded_pairs import Column, EncodedPairs, row_kind, write_chunks
from transformer_mt.data.batches.packing import RowShape
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD
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


@pytest.mark.parametrize("budget", [40, 100, 1000, 100_000])
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


def test_any_position_is_reached_at_once(pairs):
    straight = TrainingBatches(Rows(pairs), 200, seed=1)
    batches = [only(straight) for _ in range(75)]
    assert straight.epoch >= 1
    for position in (0, 1, 37, 74):
        first = TrainingBatches(Rows(pairs), 200, seed=1)
        for _ in range(position):
            only(first)
        second = TrainingBatches(Rows(pairs), 200, seed=1)
        second.load_state_dict(first.state_dict())
        assert torch.equal(only(second).src, batches[position].src)


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
@pytest.mark.parametrize("budget", [2048, 4096, 8192])
def test_nine_tenths_of_the_tokens_of_multi30k_are_real(budget):
    """On both sides together, over an epoch, where sorting by one side alone leaves 0.6."""
    data = prepare(load_config(ROOT / "configs/multi30k_en_de.yaml", [f"data.hub={MULTI30K}"]))
    batches = TrainingBatches(Rows(data.train), budget, seed=1)
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


@pytest.mark.parametrize("num_ranks, batch_tokens", [(1, 60), (1, 10_000), (3, 60), (8, 10_000)])
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


def test_an_epoch_of_a_mixture_has_its_rows_as_often_as_the_weights_say(pairs):
    mixture = Mixture([200, 100], [1.0, 2.5], seed=1)
    batches = TrainingBatches(Rows(pairs), 200, 1, mixture=mixture)
    seen = []
    while batches.epoch == 0:
        seen += rows_of(batches.next_update())
        batches.epochs  # noqa: B018 - as the log asks for it
        if batches.index >= len(batches._batches):
            break
    expected = [(src_of(pairs, i), tgt_of(pairs, i)) for i in mixture.rows(0)]
    assert sorted(seen) == sorted(expected) and len(seen) == 450


def src_of(pairs, i):
    return [*pairs.src(i).tolist(), EOS]


def tgt_of(pairs, i):
    return [*pairs.tgt(i).tolist(), EOS]


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
