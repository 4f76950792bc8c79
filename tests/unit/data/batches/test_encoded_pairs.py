import numpy as np
import pytest

from transformer_mt.data.batches.encoded_pairs import Column, EncodedPairs, write_chunks


def write_pairs(path, pairs, size=7, **options):
    """In chunks of `size`, the last one shorter."""
    parts = [pairs[i : i + size] for i in range(0, len(pairs), size)]
    chunks = [(Column.of([s for s, _ in part]), Column.of([t for _, t in part])) for part in parts]
    return write_chunks(path, chunks, **options)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 25])
def test_pairs_come_back_across_chunks_and_files(tmp_path, count):
    rng = np.random.default_rng(count)
    pairs = [
        (rng.integers(4, 99, rng.integers(1, 9)).tolist(), rng.integers(4, 99, rng.integers(1, 9)).tolist())
        for _ in range(count)
    ]
    cut = count // 3
    write_pairs(tmp_path / "a.arrow", pairs[:cut], num_ids=99)  # 16 bits in one file, 32 in the other
    write_pairs(tmp_path / "b.arrow", pairs[cut:])
    encoded = EncodedPairs([tmp_path / "a.arrow", tmp_path / "b.arrow"])
    assert len(encoded) == count
    assert [(encoded.src(i).tolist(), encoded.tgt(i).tolist()) for i in range(count)] == pairs
    rows = np.array([i for i in (count - 1, 0, count // 2, cut) if 0 <= i < count], np.int64)
    for side, ids in enumerate((encoded.src, encoded.tgt)):
        gathered = encoded.gathered(side, rows)
        assert [gathered.row(n).tolist() for n in range(len(rows))] == [ids(i).tolist() for i in rows]
        columns = [chunk[side] for chunk in encoded.chunks(range(count))]
        assert [row for c in columns for row in map(c.row, range(len(c.lengths)))] if count else not columns
        assert all(part.values.dtype == np.int32 for part in (gathered, *columns))
    assert encoded.lengths(0).tolist() == [len(src) + 1 for src, _ in pairs]
    assert encoded.lengths(1).tolist() == [len(tgt) + 1 for _, tgt in pairs]


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


def test_ids_of_16_bits_halve_the_file_and_change_nothing_else(tmp_path):
    pairs = [(list(range(n, n + 60)), [65_535] * 60) for n in range(1000)]
    prints = [
        write_pairs(tmp_path / name, pairs, size=500, num_ids=num_ids)
        for name, num_ids in (("short", 65_536), ("long", 65_537))
    ]
    assert prints[0] == prints[1]
    sizes = [(tmp_path / name).stat().st_size for name in ("short", "long")]
    assert sizes[0] < 0.55 * sizes[1]
    encoded = EncodedPairs([tmp_path / "short"])
    assert encoded.src(999).tolist() == pairs[999][0] and encoded.tgt(7).tolist() == [65_535] * 60
