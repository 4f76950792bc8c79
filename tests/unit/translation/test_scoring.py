"""Scores of given translations."""

import pytest

from tests.conftest import ROOT
from transformer_mt.errors import InputError
from transformer_mt.evaluation.scoring import pairs_of_files, score
from transformer_mt.translator import Translator


def test_a_pair_that_is_too_long_is_named_by_its_line(tmp_path):
    for side, text in (("en", "Dog.\nThe old dog sees a bird.\n"), ("de", "Er.\nEr.\n")):
        (tmp_path / f"a.{side}").write_text(text, encoding="utf-8")
    translator = Translator.load(ROOT / "tests" / "golden" / "run")
    translator.planner.max_positions = 6
    (pairs,) = pairs_of_files(translator, str(tmp_path / "a.en"), str(tmp_path / "a.de"), 10)
    with pytest.raises(InputError, match=r"a\.en:2: each side must have at most 6 tokens, but has \d+$"):
        score(translator, pairs)
