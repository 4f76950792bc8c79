from collections import Counter

import numpy as np
import pytest

from transformer_mt.data import drop_reasons as room
from transformer_mt.data.cleaning import REASONS, pair_key
from transformer_mt.data.drop_reasons import DropReasons


def fates_of(tmp_path, pairs, held_out=(), remove_duplicates=True):
    survey = DropReasons(tmp_path, {pair_key(pair) for pair in held_out}, remove_duplicates)
    walked = list(survey.walk(pairs))
    reasons = [REASONS[drop_reason] for drop_reason in survey.finish()]
    assert [REASONS[drop_reason] for drop_reason in survey.reasons()] == reasons
    assert [path.name for path in tmp_path.iterdir()] == ["reasons.u8"]
    return walked, reasons


def test_each_pair_has_one_fate(tmp_path):
    pairs = [("a", "b"), (" a ", "b"), ("", "b"), ("a", " \t"), ("held", "out"), ("a", "c"), ("a", "b")]
    walked, reasons = fates_of(tmp_path, pairs, held_out=[("held ", "out")])
    kept, empty, leaked, duplicate = "kept", "empty side", "in validation or test", "duplicate"
    assert reasons == [kept, duplicate, empty, empty, leaked, kept, duplicate]
    assert walked == [(0, ("a", "b")), (1, ("a", "b")), (5, ("a", "c")), (6, ("a", "b"))]


def test_duplicates_stay_if_asked(tmp_path):
    assert fates_of(tmp_path, [("a", "b")] * 3, remove_duplicates=False)[1] == ["kept"] * 3


def test_only_the_pair_counts_as_leaked_not_one_side_of_it(tmp_path):
    assert fates_of(tmp_path, [("a", "x"), ("x", "b")], held_out=[("a", "b")])[1] == ["kept", "kept"]


@pytest.mark.parametrize("rows", [1, 7, 2**16])
def test_the_first_of_all_duplicates_stays_however_many_rows_are_held(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(room, "_ROWS", rows)
    numbers = np.random.default_rng(0).integers(0, 300, 1000).tolist()
    _, reasons = fates_of(tmp_path, [(str(n), "x") for n in numbers])
    seen, expected = set(), []
    for n in numbers:
        expected.append("duplicate" if n in seen else "kept")
        seen.add(n)
    assert reasons == expected
    assert Counter(reasons)["kept"] == len(seen)


def test_an_empty_corpus(tmp_path):
    assert fates_of(tmp_path, []) == ([], [])
