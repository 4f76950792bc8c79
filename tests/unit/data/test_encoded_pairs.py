import numpy as np
import pytest

from transformer_mt.data.batches.encoded_pairs import Column, EncodedPairs, write_chunks


def write_pairs(path, pairs, size=7):
    """In chunks of `size`, the last one shorter."""
    parts = [pairs[i : i + size] for i in range(0, len(pairs), size)]
    return write_chunks(
        path, [(Column.of([s for s, _ in part]), Column.of([t for _, t in part])) for part in parts]
    )


@pytest.mark.parametrize("count", [0, 1, 6, 7, 8, 21, 25])
def test_pairs_come_back_across_chunks_and_files(tmp_path, count):
    rng = np.random.default_rng(count)
    pairs = [
        (rng.integers(4, 99, rng.integers(1, 9)).tolist(), rng.integers(4, 99, rng.integers(1, 9)).tolist())
        for _ in range(count)
    ]
    cut = count // 3
    write_pairs(tmp_path / "a.arrow", pairs[:cut])
    write_pairs(tmp_path / "b.arrow", pairs[cut:])
    encoded = EncodedPairs([tmp_path / "a.arrow", tmp_path / "b.arrow"])
    assert len(encoded) == count
    assert [(encoded.src(i).tolist(), encoded.tgt(i).tolist()) for i in range(count)] == pairs
    assert encoded.src_lengths.tolist() == [len(src) + 1 for src, _ in pairs]
    assert encoded.tgt_lengths.tolist() == [len(tgt) + 1 for _, tgt in pairs]


def test_fingerprint_tells_every_difference(tmp_path):
    versions = [
        [([5], [6]), ([7], [8])],
        [([5], [6]), ([7], [9])],
        [([5, 7], [6]), ([8], [8])],
        [([7], [8]), ([5], [6])],
    ]
    prints = [write_pairs(tmp_path / f"{i}.arrow", pairs) for i, pairs in enumerate(versions)]
    assert len(set(prints)) == len(versions)
    assert write_pairs(tmp_path / "again.arrow", versions[0], size=1) == prints[0], (
        "how it is cut into chunks is no matter"
    )


def test_rows_are_views_of_the_mapped_file(tmp_path):
    write_pairs(tmp_path / "a.arrow", [([5, 6], [7])] * 10)
    assert not EncodedPairs([tmp_path / "a.arrow"]).src(3).flags.owndata
