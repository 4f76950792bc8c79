"""A run made by an earlier version keeps translating as it did: never make its files anew to
please a change.
"""

from tests.conftest import ROOT
from transformer_mt import Translator

GOLDEN = ROOT / "tests" / "golden"


def test_an_old_run_translates_as_it_did():
    source, translations = (
        (GOLDEN / name).read_text(encoding="utf-8").splitlines()
        for name in ("source.txt", "translations.txt")
    )
    results = Translator.load(GOLDEN / "run", device="cpu").translate(source)
    assert [result.translation for result in results] == translations


def test_an_old_run_that_says_nothing_of_sentences_splits_them():
    assert "split_sentences" not in (GOLDEN / "run" / "config.yaml").read_text(encoding="utf-8")
    (result,) = Translator.load(GOLDEN / "run", device="cpu").translate(["The dog sleeps. A cat sings."])
    assert [segment["source"] for segment in result.segments] == ["The dog sleeps.", "A cat sings."]
