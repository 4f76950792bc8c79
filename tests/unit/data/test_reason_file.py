from collections import Counter

import numpy as np
import pytest

from transformer_mt.data.cleaning import reason_file as row_reasons
from transformer_mt.data.cleaning.drop_reasons import REASONS
from transformer_mt.data.cleaning.reason_file import ReasonFile, TrainingCorpus
from transformer_mt.text.hashes import sentence_key


def reasons_of(tmp_path, pairs, held_out=(), remove_duplicates=True):
    first_pass = ReasonFile(tmp_path, {sentence_key(src) for src, _ in held_out}, remove_duplicates)
    walked = list(first_pass.walk([TrainingCorpus(pairs)]))
    reasons = [REASONS[drop_reason] for drop_reason in first_pass.finish()]
    assert [REASONS[drop_reason] for drop_reason in first_pass.reasons()] == reasons
    assert [path.name for path in tmp_path.iterdir()] == ["reasons.u8"]
    return walked, reasons


def test_each_pair_has_one_reason(tmp_path):
    pairs = [("a", "b"), (" a ", "b"), ("", "b"), ("a", " \t"), ("held", "out"), ("a", "c"), ("a", "b")]
    walked, reasons = reasons_of(tmp_path, pairs, held_out=[("held ", "out")])
    kept, empty, leaked, duplicate = "kept", "empty side", "in validation or test", "duplicate"
    assert reasons == [kept, duplicate, empty, empty, leaked, kept, duplicate]
    assert walked == [(0, ("a", "b")), (1, ("a", "b")), (5, ("a", "c")), (6, ("a", "b"))]


def test_duplicates_stay_if_asked(tmp_path):
    assert reasons_of(tmp_path, [("a", "b")] * 3, remove_duplicates=False)[1] == ["kept"] * 3


def test_a_leak_counts_when_the_normalised_source_is_held_out(tmp_path):
    """Capitals, spacing and compatibility characters make no other sentence; the target alone does."""
    pairs = [("Ｔｈｅ  ﬁrst Dog", "x"), ("b", "held"), ("the first dog.", "y"), ("THE FIRST DOG", "z")]
    reasons = reasons_of(tmp_path, pairs, held_out=[("The first dog", "b")])[1]
    assert reasons == ["in validation or test", "kept", "kept", "in validation or test"]


def test_duplicates_and_leaks_are_found_across_corpora(tmp_path):
    first_pass = ReasonFile(tmp_path, {sentence_key("held")}, remove_duplicates=True)
    corpora = [
        TrainingCorpus([("a", "b"), ("c", "d")]),
        TrainingCorpus([("held", "x"), ("a", "b"), ("e", "f")]),
    ]
    list(first_pass.walk(corpora))
    kept, duplicate, leaked = "kept", "duplicate", "in validation or test"
    assert [REASONS[reason] for reason in first_pass.finish()] == [kept, kept, leaked, duplicate, kept]
    assert first_pass.sizes == [2, 3]


@pytest.mark.parametrize("rows", [1, 7, 2**16])
def test_the_first_of_all_duplicates_stays_however_many_rows_are_held(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(row_reasons, "_ROWS", rows)
    numbers = np.random.default_rng(0).integers(0, 300, 1000).tolist()
    _, reasons = reasons_of(tmp_path, [(str(n), "x") for n in numbers])
    seen, expected = set(), []
    for n in numbers:
        expected.append("duplicate" if n in seen else "kept")
        seen.add(n)
    assert reasons == expected
    assert Counter(reasons)["kept"] == len(seen)


def test_an_empty_corpus(tmp_path):
    assert reasons_of(tmp_path, []) == ([], [])
