"""A run made by an earlier version keeps translating as it did: never make its files anew to please a change."""

from tests.conftest import ROOT
from transformer_mt import Translator

GOLDEN = ROOT / "tests" / "golden"


def test_an_old_run_translates_as_it_did():
    source, translations = (
        (GOLDEN / name).read_text(encoding="utf-8").splitlines() for name in ("source.txt", "translations.txt")
    )
    results = Translator.load(GOLDEN / "run", device="cpu").translate(source)
    assert [result.translation for result in results] == translations
