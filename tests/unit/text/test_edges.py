"""What stands around the words of a line: white space, bullets, the final stop."""

import pytest

from transformer_mt.text.sentences import edges, match_end


@pytest.mark.parametrize(
    "line, language, before, words, after",
    [
        ("A dog.", "en", "", "A dog.", ""),
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
        ("dog", "Hund", "de", "Hund"),
        ("A dog.", "Ein Hund", "de", "Ein Hund."),
        ("A dog?", "Ein Hund.", "de", "Ein Hund."),  # one is there: which one is the model's decision
        ("A dog...", "Ein Hund", "de", "Ein Hund..."),
        ("A dog?", "一只狗", "zh", "一只狗？"),
        ("一只狗。", "A dog", "en", "A dog."),
        ("犬です。", "一只狗", "zh", "一只狗。"),
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
