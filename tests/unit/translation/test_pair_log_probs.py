import math

import numpy as np
import pytest

from tests.conftest import ROOT
from transformer_mt.errors import InputError
from transformer_mt.translation import pair_log_probs as scorers
from transformer_mt.translation.pair_log_probs import forget_models, log_probs
from transformer_mt.translation.scoring import Pair, pairs_of_files, score
from transformer_mt.translation.translator import Translator

GOLDEN = ROOT / "tests" / "golden" / "run"
PAIRS = [("The old dog sees a bird.", "Der alte Hund sieht einen Vogel."), ("The old dog.", "Die Königin!")]


def test_log_probs_are_the_means_per_token_that_score_gives():
    translator = Translator.load(GOLDEN)
    encoded = zip(
        translator.tokenizer.encode_src([src for src, _ in PAIRS]),
        translator.tokenizer.encode_tgt([tgt for _, tgt in PAIRS]),
    )
    expected = [
        math.log(1 / scored.ppl)
        for scored in score(translator, [Pair("a:1", *pair, [ids]) for pair, ids in zip(PAIRS, encoded)])
    ]
    assert log_probs(str(GOLDEN), PAIRS, ("en", "de")) == pytest.approx(expected, abs=1e-5)


def test_a_pair_that_would_need_gigabytes_is_not_scored(monkeypatch):
    monkeypatch.setattr(scorers, "_MAX_LENGTH", 12)
    found = log_probs(str(GOLDEN), [PAIRS[1], ("Dog. " * 20, "Hund.")], ("en", "de"))
    assert np.isfinite(found).tolist() == [True, False]


def test_models_are_kept_until_they_are_forgotten(monkeypatch):
    log_probs(str(GOLDEN), PAIRS, ("en", "de"))
    monkeypatch.setattr(Translator, "load", None)
    log_probs(str(GOLDEN), PAIRS, ("en", "de"))
    forget_models()
    with pytest.raises(TypeError):
        log_probs(str(GOLDEN), PAIRS, ("en", "de"))


def test_a_pair_that_is_too_long_is_named_by_its_line(tmp_path):
    for side, text in (("en", "Dog.\nThe old dog sees a bird.\n"), ("de", "Er.\nEr.\n")):
        (tmp_path / f"a.{side}").write_text(text, encoding="utf-8")
    translator = Translator.load(GOLDEN)
    translator.planner.max_positions = 6
    (pairs,) = pairs_of_files(translator, str(tmp_path / "a.en"), str(tmp_path / "a.de"), 10)
    with pytest.raises(InputError, match=r"a\.en:2: a pair must have at most 6 pieces a side, but has \d+$"):
        score(translator, pairs)
