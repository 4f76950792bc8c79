""""""

import numpy as np
import pytest
from safetensors.numpy import load_file

from transformer_mt.corpora.seen_sentences import (
    FILTER_ERROR,
    NO_KEYS,
    KeySet,
    SeenSentences,
    Sentences,
    keys_of,
)

PAIRS = [("A dog.", ("Ein Hund.",)), ("A  CAT.", ("x", "Eine Katze.")), ("new", ("neu",))]


def record(trained=(), alone=(), scored=()):
    return SeenSentences(Sentences(keys_of(trained), keys_of(alone), keys_of(scored)))


def test_a_sentence_is_known_by_its_source_or_by_a_reference_on_any_side():
    """As of multi-parallel data, whose references are targets of other pairs."""
    assert record(["a dog.", "neu"]).own.knows(PAIRS).tolist() == [True, False, True]
    assert record(alone=["eine katze.", "NEW"]).own.knows(PAIRS).tolist() == [False, True, True]
    assert not record(scored=["A dog."]).own.knows(PAIRS).any()


def test_what_is_made_of_several_models_inherits_all_they_know(tmp_path):
    child = SeenSentences.inherited_from([record(["A dog."]), record(alone=["neu"], scored=["z"])])
    assert child.inherited.knows(PAIRS).tolist() == [True, False, True] and child.is_complete
    assert child.inherited.scored.has(keys_of(["z"]).exact).all() and child.own.trained.is_empty
    child.write(tmp_path / "seen.safetensors")
    grandchild = SeenSentences.inherited_from([SeenSentences.read(tmp_path / "seen.safetensors")])
    assert grandchild.inherited.knows(PAIRS).tolist() == [True, False, True]
    assert not SeenSentences.inherited_from([child, None]).is_complete
    assert not SeenSentences.inherited_from([SeenSentences.inherited_from([None])]).is_complete


def test_a_record_is_a_file_of_safetensors_that_is_read_where_it_is_looked_at(tmp_path):
    keys = keys_of(f"sentence {n}" for n in range(301)).exact
    filtered = KeySet.of_arrays([keys], len(keys), most_exact=100)
    file = tmp_path / "seen.safetensors"
    record_of = SeenSentences(Sentences(trained=filtered, scored=keys_of(["A dog."])))
    record_of.write(file)
    tensors = load_file(file)
    assert np.array_equal(tensors["own.trained.1"], filtered.filters[0])
    assert tensors["own.scored.0"].tolist() == keys_of(["a  dog."]).exact.tolist()
    read = SeenSentences.read(file).own
    assert isinstance(read.trained.filters[0], np.memmap) and isinstance(read.scored.exact, np.memmap)
    assert read.scored.exact.flags.aligned  # else each look-up copies all
    assert read.trained.has(keys).all() and len((read | read).trained.filters) == 1
    assert read.fingerprint == record_of.own.fingerprint != SeenSentences.read(file).inherited.fingerprint


@pytest.mark.parametrize("content", [b"", b"no tensors", None])
def test_a_record_that_cannot_be_read_is_none(tmp_path, content):
    file = tmp_path / "seen.safetensors"
    if content is not None:
        file.write_bytes(content)
    assert SeenSentences.read(file) is None


#


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
