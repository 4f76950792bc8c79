"""Codes of languages: of two letters, of three, with script and country."""

import pytest

from transformer_mt.text.languages import base_code, has_no_word_spaces, is_same_language, to_capitals
from transformer_mt.text.sentences import split_sentences
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
