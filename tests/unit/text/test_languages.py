"""Codes of languages: of two letters, of three, with script and country."""

from random import Random

import pytest

from transformer_mt.text.languages import (
    base_code,
    casefolded,
    has_no_word_spaces,
    is_same_language,
    titled,
    to_capitals,
    to_small_letters,
)
from transformer_mt.text.sentences import split_sentences
from transformer_mt.text.text_changes import LowerCase, TitleCase, UpperCase
from transformer_mt.translation.stages.text_stages import to_sentence_case


@pytest.mark.parametrize(
    "code, base", [("eng_Latn", "en"), ("zho_Hans", "zh"), ("zh-CN", "zh"), ("pes", "fa"), ("liv", "liv")]
)
def test_a_language_has_one_code_however_it_is_named(code, base):
    assert base_code(code) == base and is_same_language(code, base)


def test_what_is_known_of_a_language_is_known_by_its_longer_code():
    assert has_no_word_spaces("jpn_Jpan") and not has_no_word_spaces("kor_Hang")
    assert split_sentences("Herr Dr. Müller kommt. Gut.", "deu_Latn") == ["Herr Dr. Müller kommt. ", "Gut."]
    assert to_sentence_case("WHAT SHOULD I DO", "eng_Latn") == "What should I do"
    assert "".join(to_capitals("istanbul", "tur_Latn")) == "İSTANBUL"


#


CAPITALS = [
    ("tr", "İstanbul'da ılık bir ismi", "İSTANBUL'DA ILIK BİR İSMİ"),
    ("az_Latn", "ışıq iş", "IŞIQ İŞ"),
    ("de", "die Straße", "DIE STRASSE"),
    ("el", "Ο Νίκος είναι ψηλός, ΐ", "Ο ΝΙΚΟΣ ΕΙΝΑΙ ΨΗΛΟΣ, Ϊ"),
    ("ka", "მე მიყვარს", "მე მიყვარს"),
    ("hr", "ǆep", "ǄEP"),
]


@pytest.mark.parametrize("language, text, expected", CAPITALS)
def test_capitals_are_those_of_the_language(language, text, expected):
    assert "".join(to_capitals(text, language)) == expected
    # Augmentation and `evaluate --robust` write what `translate` writes.
    assert UpperCase((language, "en"))(text, "i", Random(0)) == (expected, "I")


@pytest.mark.parametrize(
    "language, text, expected",
    [
        ("tr", "inci ılık Ipek", "İnci Ilık Ipek"),
        ("nl", "het ijs IJS ij", "Het IJs IJS IJ"),
        ("hr", "ǆep i njega", "ǅep I Njega"),
        ("ka", "მე მიყვარს", "მე მიყვარს"),
        ("en", "it's o'clock", "It's O'clock"),
    ],
)
def test_the_first_letter_of_a_word_has_its_title_form(language, text, expected):
    assert titled(text, language) == expected
    assert TitleCase(("en", language))("i", text, Random(0)) == ("I", expected)


def test_small_letters_keep_the_length():
    assert to_small_letters("İNCİ IŞIK", "tr") == "inci ışık" and to_small_letters("İI", "en") == "ii"
    assert LowerCase(("tr", "tr"))("IŞIK", "IŞIK", Random(0)) == ("ışık", "IŞIK")
    assert casefolded("IŞIK", "tr") == "ışık" and casefolded("IŞIK", "en") == "işik"
