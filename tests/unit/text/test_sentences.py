"""Edges, final marks and what else sentences are made of."""

from random import Random

import pytest

from transformer_mt.text.sentences import edges, final_mark, match_end
from transformer_mt.text.text_changes import FinalMark, NoFinalMark


@pytest.mark.parametrize(
    "line, language, before, words, after",
    [
        ("\t  A dog. ", "en", "\t  ", "A dog.", " "),
        ("- A dog", "en", "- ", "A dog", ""),
        ("    * • A dog", "en", "    * • ", "A dog", ""),
        ("3) A dog", "de", "3) ", "A dog", ""),
        ("(a) A dog", "en", "(a) ", "A dog", ""),
        ("12. A dog", "en", "12. ", "A dog", ""),
        ("3. Oktober", "de", "", "3. Oktober", ""),  # an ordinal
        ("-5 degrees", "en", "", "-5 degrees", ""),
        ("2024. A year", "en", "", "2024. A year", ""),
        ("- ", "en", "", "-", " "),
        ("\u3000一只狗", "zh", "\u3000", "一只狗", ""),
        (">> Who?", "en", ">> ", "Who?", ""),
        ("   ", "en", "   ", "", ""),
    ],
)
def test_the_parts_of_a_line(line, language, before, words, after):
    assert edges(line, language) == (before, words, after)
    assert "".join(edges(line, language)) == line


@pytest.mark.parametrize(
    "source, translation, language, expected",
    [
        ("dog", "Hund.", "de", "Hund"),
        ("A dog.", "Ein Hund", "de", "Ein Hund."),
        ("A dog?", "Ein Hund.", "de", "Ein Hund."),  # one is there: which one is the model's decision
        ("A dog?", "一只狗", "zh", "一只狗？"),
        ("一只狗。", "A dog", "en", "A dog."),
        ("dog", "一只狗。", "zh", "一只狗"),
        ("Who are you?", "من أنت؟", "ar", "من أنت؟"),
        ("A dog is there.", "कुत्ता है।", "hi", "कुत्ता है।"),
        ("Dog.  ", "Hund  ", "de", "Hund.  "),
        ('He said "go."', "„Geh“.", "de", "„Geh“."),
        ('Say "go"', "Sag „geh.“", "de", "Sag „geh“"),
        ("Dog.", "", "de", ""),
    ],
)
def test_the_final_stop_follows_the_source(source, translation, language, expected):
    assert match_end(source, translation, language) == expected


#


ENDED = {
    "en": "I go.", "zh": "我来了。", "ja": "行く！", "hi": "मैं जाता हूँ।", "ar": "أين أنت؟",
    "ur": "میں جاتا ہوں۔", "am": "እኔ ተማሪ ነኝ።", "my": "သူ သွားသည်။", "km": "ខ្ញុំទៅ។",
    "hy": "Ես եկա։", "bo": "ང་འགྲོ།", "el": "Πού είσαι;",
    "sat": "ᱤᱧ ᱪᱟᱞᱟᱜᱼᱟ᱾", "fr": "Il dit : « Va… »", "de": "Er sagte: „Geh!“",
}  # fmt: skip


@pytest.mark.parametrize("language", ENDED)
def test_the_marks_of_every_script_are_known(language):
    text = ENDED[language]
    begin, end = final_mark(text, language)
    without = NoFinalMark(("en", language))("I go.", text, Random(0))
    assert (
        without == ("I go", text[:begin].rstrip() + text[end:]) and final_mark(without[1], language) is None
    )
    changed = {FinalMark((language, "en"))(text, "I go.", Random(seed)) for seed in range(20)}
    mark = text[end - 1]
    assert changed == {
        (without[1], "I go"),
        *((text[:end] + mark * more + text[end:], "I go." + "." * more) for more in (1, 2)),
    }
    # decode.match_ends knows the same marks.
    assert match_end("I go", text, language) == text[:begin] + text[end:]


def test_what_has_no_mark_stays_as_it_is():
    assert final_mark("ฉันไป", "th") is None and final_mark("a; b;", "en") is None and final_mark("") is None
    assert NoFinalMark(("en", "th"))("I go.", "ฉันไป", Random(0)) == ("I go.", "ฉันไป")


def test_the_time_grows_with_the_length_alone():
    """A minute and more, if each mark of a run were tried."""
    assert final_mark("." * 300_000 + "a") is None and final_mark("a" + "." * 300_000) == (1, 300_001)
