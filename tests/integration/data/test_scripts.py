"""Each letter, mark, digit and invisible character of a script goes into training, and comes back."""

import json
import random
import unicodedata

import pytest

from tests.conftest import TINY
from transformer_mt.config import Config
from transformer_mt.data.preparation.prepare import prepare

SCRIPTS = [
    "LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "HEBREW", "ARABIC", "DEVANAGARI", "BENGALI",
    "GURMUKHI", "GUJARATI", "ORIYA", "TAMIL", "TELUGU", "KANNADA", "MALAYALAM", "SINHALA", "THAI",
    "LAO", "TIBETAN", "MYANMAR", "GEORGIAN", "HANGUL", "ETHIOPIC", "KHMER", "HIRAGANA", "KATAKANA",
    "CJK",
]  # fmt: skip
SIGNS = "²³½¾№ªº℃µ™…«»„“、。！？（）１％٪؟،।"
INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\u034f\ufe0f\ufeff"


def characters_of(script):
    """Those of the Basic Multilingual Plane."""
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
