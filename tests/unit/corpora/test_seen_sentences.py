import numpy as np
import pytest
from safetensors.numpy import load_file

from transformer_mt.corpora.seen_sentences import KeySet, SeenSentences, Sentences, keys_of

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


def test_filters_are_kept_too(tmp_path):
    keys = keys_of(f"sentence {n}" for n in range(300)).exact
    filtered = SeenSentences(Sentences(trained=KeySet.of_arrays([keys], len(keys), most_exact=100)))
    filtered.write(tmp_path / "seen.safetensors")
    read = SeenSentences.read(tmp_path / "seen.safetensors")
    assert read.own.trained.has(keys).all() and len(read.own.trained.filters) == 1
    assert read.own.fingerprint == filtered.own.fingerprint != read.inherited.fingerprint


def test_a_record_is_a_file_of_safetensors_that_is_read_where_it_is_looked_at(tmp_path):
    keys = keys_of(f"sentence {n}" for n in range(301)).exact
    filtered = KeySet.of_arrays([keys], len(keys), most_exact=100)
    file = tmp_path / "seen.safetensors"
    SeenSentences(Sentences(trained=filtered, scored=keys_of(["A dog."]))).write(file)
    tensors = load_file(file)
    assert np.array_equal(tensors["own.trained.1"], filtered.filters[0])
    assert tensors["own.scored.0"].tolist() == keys_of(["a  dog."]).exact.tolist()
    read = SeenSentences.read(file).own
    assert isinstance(read.trained.filters[0], np.memmap) and isinstance(read.scored.exact, np.memmap)
    assert read.scored.exact.flags.aligned  # else each look-up copies all
    assert len((read | read).trained.filters) == 1


@pytest.mark.parametrize("content", [b"", b"no tensors", None])
def test_a_record_that_cannot_be_read_is_none(tmp_path, content):
    file = tmp_path / "seen.safetensors"
    if content is not None:
        file.write_bytes(content)
    assert SeenSentences.read(file) is None
