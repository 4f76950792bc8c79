"""All pairs of search options: what the user gives stands; rules and lengths hold for what follows."""

from itertools import combinations

import pytest

from transformer_mt import Translator

LINES = ["The dog sleeps.", "A cat sings and the small child reads a book."]
PREFIXES = ["der der Hund", "Eine Katze"]
OPTIONS = {
    "prefix": {}, "n_best": {}, "align": {}, "retry": {}, "protect": {},
    "no_repeat": {"no_repeat_ngram": 1}, "banned": {"banned": ["der", "Katze"]},
    "min_length": {"min_length": 7}, "max_length": {"max_length": 9}, "penalty": {"length_penalty": 0.0},
    "early": {"stop_early": True}, "greedy": {"beam": 1}, "whole": {"split_sentences": False},
    "sample": {"search": "sample", "samples": 4}, "mbr": {"search": "mbr", "samples": 4},
}  # fmt: skip


@pytest.mark.parametrize("pair", combinations(OPTIONS, 2), ids="-".join)
def test_each_pair_of_options_keeps_its_promises(tiny_run, pair):
    if set(pair) in ({"sample", "mbr"}, {"greedy", "n_best"}, {"early", "sample"}, {"early", "mbr"}):
        pytest.skip("refused, as other tests say")
    settings = {key: value for name in pair for key, value in OPTIONS[name].items()}
    if "sample" in pair or "mbr" in pair:
        settings.pop("beam", None)
    translator = Translator.load(tiny_run, device="cpu", engine="torch", decode=settings)
    given = PREFIXES if "prefix" in pair else None
    options = {"n_best": 2 if "n_best" in pair else 1, "align": "align" in pair, "retry": "retry" in pair}
    protect = r"\bdog\b" if "protect" in pair else None
    results = translator.translate(LINES, prefixes=given, protect=protect, **options)
    assert len(results) == len(LINES) and [result.source for result in results] == LINES
    for result, prefix in zip(results, given or ["", ""]):
        for candidate in result.n_best:
            assert candidate.translation.startswith(prefix) and candidate.translation
            written = len(candidate.tokens) - len(translator.tokenizer.encode_tgt([prefix])[0])
            if "protect" not in pair:
                assert settings.get("min_length", 0) <= written <= settings.get("max_length", 99)
            follows = candidate.translation[len(prefix) :]
            assert "banned" not in pair or not {"der", "Katze"} & set(follows.split()) or not follows
