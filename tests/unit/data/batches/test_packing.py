"""Packed batches: every pair once and whole, both sides in one row, few positions of padding."""

from pathlib import Path

import numpy as np
import pytest
import torch

from transformer_mt.data.batches.batch import Rows
from transformer_mt.data.batches.batching import BatchPrefetcher, Mixture, TrainingBatches
from transformer_mt.data.batches.encoded_pairs import Column, EncodedPairs, write_chunks
from transformer_mt.data.batches.packing import RowShape, packed_rows
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD
from transformer_mt.errors import WorkError

CPU = torch.device("cpu")


def random_rows(count, seed=0, longest=60):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest, count)
    return [
        (rng.integers(4, 500, n), rng.integers(4, 500, max(1, min(longest, n + rng.integers(-3, 4)))))
        for n in lengths
    ]


@pytest.fixture
def pairs(tmp_path: Path) -> EncodedPairs:
    """1,200 pairs in three chunks of two files."""
    rows = random_rows(1200)
    for name, parts in (("a", [rows[:500], rows[500:503]]), ("b", [rows[503:]])):
        chunks = [tuple(Column.of([row[side] for row in part]) for side in (0, 1)) for part in parts]
        write_chunks(tmp_path / name, chunks)
    return EncodedPairs([tmp_path / "a", tmp_path / "b"])


def packed(pairs, batch_tokens, seed=1, *ranks, update_tokens=0, **others):
    shape = RowShape.of(update_tokens or batch_tokens, pairs.lengths(0), pairs.lengths(1), 64)
    return TrainingBatches(
        Rows(pairs), batch_tokens, seed, *ranks, update_tokens=update_tokens, shape=shape, **others
    )


def sentences(batch):
    """The (source, target) pairs of a packed batch, EOS left out, and what they must look like."""
    src_numbers, src_positions, tgt_numbers, tgt_positions = batch.packing.tensors
    pairs = []
    for row in range(len(batch.src)):
        assert int(src_numbers[row].max()) == int(tgt_numbers[row].max())
        for number in range(1, int(src_numbers[row].max()) + 1):
            (at,), (to,) = (torch.where(side[row] == number) for side in (src_numbers, tgt_numbers))
            src, given, written = batch.src[row, at], batch.tgt_in[row, to], batch.tgt_out[row, to]
            assert at.tolist() == list(range(at[0], at[0] + len(at)))  # not cut
            assert src_positions[row, at].tolist() == list(range(len(at)))
            assert tgt_positions[row, to].tolist() == list(range(len(to)))
            assert src[-1] == EOS and written[-1] == EOS and given[0] == BOS
            assert torch.equal(given[1:], written[:-1])
            pairs.append((tuple(src[:-1].tolist()), tuple(written[:-1].tolist())))
        for ids in (batch.tgt_in, batch.tgt_out):
            assert (ids[row][tgt_numbers[row] == 0] == PAD).all()
        assert (batch.src[row][src_numbers[row] == 0] == PAD).all()
    return pairs


def epoch(batches):
    """The batches of the first epoch."""
    made = []
    while True:
        (batch,) = batches.next_update()
        if batches.epoch:
            return made
        made.append(batch)


def test_an_epoch_has_each_pair_once_in_batches_of_one_shape(pairs):
    made = epoch(packed(pairs, 1024, seed=1))
    assert {(batch.src.shape, batch.tgt_in.shape, batch.tgt_out.shape) for batch in made} == {
        ((8, 128), (8, 128), (8, 128))
    }
    expected = [(tuple(pairs.src(i).tolist()), tuple(pairs.tgt(i).tolist())) for i in range(len(pairs))]
    assert sorted(pair for batch in made for pair in sentences(batch)) == sorted(expected)
    assert all(batch.num_tokens == int((batch.tgt_out != PAD).sum()) for batch in made)


def test_order_and_content_are_a_function_of_seed_and_epoch(pairs):
    def first(seed):
        return packed(pairs, 1024, seed).next_update()[0].src

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


# Lengths as of European parliament and news, and of short everyday sentences.
@pytest.mark.parametrize(("mean", "deviation"), [(3.2, 0.6), (2.2, 0.4)])
def test_nine_positions_of_ten_are_real(mean, deviation):
    rng = np.random.default_rng(0)
    src = np.clip(rng.lognormal(mean, deviation, 30_000), 2, 128).astype(np.int32)
    tgt = np.clip(src * rng.normal(1.03, 0.15, len(src)), 2, 128).astype(np.int32)
    shape = RowShape.of(4096, src, tgt, 128)
    assert (shape.src, shape.tgt) == (128, 128)
    rows = packed_rows(src, tgt, shape)
    filled = [np.bincount(rows, weights=side) for side in (src, tgt)]
    assert all(side.max() <= 128 for side in filled)
    assert all(side.sum() / (128 * len(side)) > 0.9 for side in filled)


def test_rows_fit_the_longest_pair_and_the_ratio_of_the_sides():
    def shape(longest, ratio):
        src = np.full(1000, 40)
        return RowShape.of(4096, src, (src * ratio).astype(int), longest)

    assert shape(40, 1.0) == RowShape(32, 128, 128)
    assert shape(129, 1.0) == RowShape(16, 256, 256)
    assert shape(128, 0.5) == RowShape(16, 256, 128)
    assert shape(128, 1.28) == RowShape(32, 128, 128)  # longer rows would cost more than they save
    assert shape(128, 1.5) == RowShape(10, 256, 384)
    assert shape(512, 1.0) == RowShape(8, 512, 512)
    assert RowShape.of(10, np.array([5]), np.array([5]), 5).rows == 1


def test_pairs_as_long_as_a_row_have_one_of_their_own():
    lengths = np.array([128] * 5 + [1] * 3)
    rows = packed_rows(lengths, lengths, RowShape(4, 128, 128))
    assert len(set(rows[:5].tolist())) == 5
    assert packed_rows(np.zeros(0, int), np.zeros(0, int), RowShape(4, 128, 128)).tolist() == []


def test_weights_of_corpora_are_kept(pairs):
    batches = packed(pairs, 1024, mixture=Mixture([1000, 200], [1.0, 3.0], seed=1))
    of_epoch = [pair for batch in epoch(batches) for pair in sentences(batch)]
    rows = [(tuple(pairs.src(i).tolist()), tuple(pairs.tgt(i).tolist())) for i in (0, 999, 1000)]
    assert [of_epoch.count(row) for row in rows] == [1, 1, 3]


def test_ranks_share_an_update_in_batches_of_one_shape(pairs):
    """With `update_tokens` an update is the same on any number of ranks, in as many passes on each."""
    alone = packed(pairs, 100_000, 1, update_tokens=2560)
    ranks = [packed(pairs, 512, 1, rank, 3, update_tokens=2560) for rank in range(3)]
    for _ in range(4):
        (whole,) = alone.next_update()
        shares = [batches.next_update() for batches in ranks]
        assert [len(share) for share in shares] == [2, 2, 2]
        assert len({batch.src.shape for share in shares for batch in share}) == 1
        of_epoch = [pair for share in shares for batch in share for pair in sentences(batch)]
        assert sorted(of_epoch) == sorted(sentences(whole))
        assert sum(batch.num_tokens for share in shares for batch in share) == whole.num_tokens


def test_a_rank_without_rows_computes_without_adding_anything(pairs):
    """At an epoch's end an update may have fewer rows than there are ranks."""
    for index in range(1000):
        ranks = [packed(pairs, 512, 1, rank, 7, update_tokens=1024) for rank in range(7)]
        if index >= len(ranks[0]._batches):
            break
        if len(set(ranks[0]._batches[index][:, 0])) < 7:
            for batches in ranks:
                batches.load_state_dict({"epoch": 0, "index": index})
            shares = [batches.next_update() for batches in ranks]
            assert len({batch.src.shape for share in shares for batch in share}) == 1
            assert sum(batch.num_tokens == 0 for share in shares for batch in share) > 0
            return
    raise AssertionError("no update has fewer rows than ranks; the test needs other pairs")


def test_parts_of_a_batch_have_one_shape(pairs):
    (batch,) = packed(pairs, 128 * 10, 1).next_update()
    assert batch.split(10_000) == [batch]
    for most in (128, 400, 1000):
        parts = batch.split(most)
        assert len({part.src.shape for part in parts}) == 1
        assert all(part.num_positions <= most for part in parts)
        assert [pair for part in parts for pair in sentences(part)] == sentences(batch)
        assert sum(part.num_tokens for part in parts) == batch.num_tokens
    idle = batch.idle()
    assert idle.num_tokens == 0 and (idle.tgt_out == PAD).all() and torch.equal(idle.src, batch.src)


def test_a_process_makes_the_same_batches_and_resumes(pairs):
    sources = []
    for own_process in (False, True):
        batches = BatchPrefetcher(packed(pairs, 1024, 1), 2, CPU, own_process)
        made = [batches.next_update() for _ in range(3)]
        batches.load_state_dict(batches.state_dict())
        made.append(batches.next_update())
        sources.append((made, batches.state_dict(), batches.epochs))
        batches.close()
    (here, *position), (there, *position_there) = sources
    assert position == position_there
    for update, other in zip(here, there):
        for batch, same in zip(update, other):
            assert batch.num_tokens == same.num_tokens
            assert all(torch.equal(left, right) for left, right in zip(batch.tensors, same.tensors))


def test_the_end_of_the_process_is_one_line(pairs):
    batches = BatchPrefetcher(packed(pairs, 1024, 1), 1, CPU, own_process=True)
    batches.next_update()
    assert batches._process is not None
    batches._process._fork._process.kill()
    with pytest.raises(WorkError, match="worker process has ended with status -9; run the same command"):
        for _ in range(50):  # those that it had sent
            batches.next_update()
    batches.close()
