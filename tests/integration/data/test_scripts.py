"""Each letter, mark, digit and invisible character of a script goes into training, and comes back."""

import json
import random
import unicodedata

import pytest

from tests.conftest import TINY
from tests.helpers.upper_case import UpperCaseEngine
from transformer_mt.config import Config, DecodeConfig
from transformer_mt.data.vocabulary.tokenizer import EOS
from transformer_mt.preparation import prepare
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.translator import Translator

SCRIPTS = ["LATIN", "ARABIC", "DEVANAGARI", "BENGALI", "THAI", "TIBETAN", "HANGUL", "KATAKANA", "CJK"]
SIGNS = "²³½¾№ªº℃µ™…«»„“、。！？（）１％٪؟،।"
INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\u034f\ufe0f\ufeff"


def characters_of(script):
    """The characters of a script in the Basic Multilingual Plane."""
    named = [c for c in map(chr, range(0xA0, 0xFFFE)) if unicodedata.name(c, "").startswith(f"{script} ")]
    return [c for c in named if unicodedata.category(c)[0] in "LMNP"]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_what_is_written_is_what_is_trained_on(tmp_path, monkeypatch, script, kind):
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "cache"))
    rng = random.Random(script)
    characters = characters_of(script)
    rng.shuffle(characters)
    words = ["".join(characters[at : at + 4]) for at in range(0, min(len(characters), 1200), 4)]
    words += [f"{word[:2]}{rng.choice(INVISIBLE)}{word[2:]}" for word in words[:20] if len(word) > 2]
    words += [f"{rng.randrange(100)}{sign}" for sign in SIGNS]
    rng.shuffle(words)
    rows = [" ".join(words[at : at + 6]) for at in range(0, len(words), 6)]
    pairs = [{"en": f"line {number}", "xx": row} for number, row in enumerate(rows)]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs), encoding="utf-8")
    valid = tmp_path / "valid.jsonl"
    valid.write_text(json.dumps({"en": "another one", "xx": rows[0]}) + "\n", encoding="utf-8")
    data = {"source_lang": "en", "target_lang": "xx", "max_length": 400, "max_length_ratio": 100.0}
    data |= {"train": {"file": str(file)}, "valid": {"file": str(valid)}}
    size = 290 + len(set("".join(rows)))
    tokenizer = {"kind": kind, "vocab_size": size, "character_coverage": 1.0}
    config = Config.model_validate(TINY | {"data": data, "tokenizer": tokenizer})
    prepared = prepare(config)
    trained = {prepared.tokenizer.decode_tgt(prepared.train.tgt(row)) for row in range(len(prepared.train))}
    assert {unicodedata.normalize("NFC", row) for row in trained} == {
        unicodedata.normalize("NFC", row) for row in rows
    }


class CopyEngine(UpperCaseEngine):
    """Writes its source."""

    def search(self, requests, settings, n_best):
        for i, request in enumerate(requests):
            text = self.tokenizer.src.decode(request.src)
            yield i, [Hypothesis([*self.tokenizer.encode_tgt([text])[0], EOS], -1.0, -1.0)]


@pytest.mark.parametrize("language, text", [
    ("fa", "می\u200cروم و کتاب\u200cها را می\u200cبینم"),
    ("ur", "یہ میرا گھر ہے ۱۲۳"), ("ml", "അവന്\u200d ചില്ല് ൺ ൻ ർ"), ("uk", "під'їзд № 12"),
    ("es", "1.º y 2.ª de 5 m²"), ("ko", "ㅋㅋ 그래요 ㅠㅠ 10㎡"), ("de", "10² m und 5 µm und 3½ ℃"),
])  # fmt: skip
def test_a_language_comes_through_vocabulary_rows_and_search_as_it_is_written(
    tmp_path, monkeypatch, language, text
):
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "cache"))
    pairs = [{language: f"{text} {number}", "en": f"line {number}"} for number in range(60)]
    for name, part in (("train", pairs[:50]), ("valid", pairs[50:])):
        rows = "".join(f"{json.dumps(pair)}\n" for pair in part)
        (tmp_path / f"{name}.jsonl").write_text(rows, encoding="utf-8")
    data = {name: {"file": str(tmp_path / f"{name}.jsonl")} for name in ("train", "valid")}
    data |= {"source_lang": language, "target_lang": "en", "max_length": 400, "max_length_ratio": 100.0}
    config = Config.model_validate(TINY | {"data": data, "tokenizer": {"kind": "char", "vocab_size": 400}})
    prepared = prepare(config)
    trained = {prepared.tokenizer.src.decode(prepared.train.src(row).tolist()) for row in range(50)}
    assert trained == {pair[language] for pair in pairs[:50]}
    translator = Translator(CopyEngine(prepared.tokenizer), prepared.tokenizer, config, DecodeConfig())
    assert [result.translation for result in translator.translate([text])] == [text]
