import numpy as np

from transformer_mt.corpora.seen_sentences import FILTER_ERROR, NO_KEYS, KeySet


def random_keys(count, seed):
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)


def test_a_set_has_its_keys_and_no_others():
    keys, others = random_keys(1000, 1), random_keys(1000, 2)
    known = KeySet.of_arrays([keys[:300], keys[200:]], len(keys) + 100)
    assert known.has(keys).all() and not known.has(others).any()
    assert len(known.exact) == 1000 and known.has([]).tolist() == []
    assert NO_KEYS.is_empty and not NO_KEYS.has(keys).any()
    both = known | KeySet.of(others.tolist())
    assert both.has(keys).all() and both.has(others).all()


def test_many_keys_take_two_bytes_each_and_the_error_that_is_stated():
    keys, others = random_keys(600_000, 1), random_keys(200_000, 2)
    known = KeySet.of_arrays([keys[:40_000], keys[40_000:]], len(keys), most_exact=50_000)
    (bits,) = known.filters
    assert known.has(keys).all() and bits.nbytes == 2 * len(keys) and not len(known.exact)
    assert known.has(others).mean() < 1.3 * FILTER_ERROR
    # Filters of ancestors are kept beside one another, each once.
    both = known | known | KeySet.of(others[:10].tolist())
    assert len(both.filters) == 1 and both.has(others[:10]).all() and both.has(keys).all()
