"""Documents through a translator: what is asked of it, and what comes back."""

import pytest

from tests.unit.documents.upper_case import upper_case_translator
from transformer_mt.documents.read import read_document
from transformer_mt.documents.translate import parse, translate_pieces
from transformer_mt.errors import InputError


class Counting:
    """A translator that counts the texts it is asked for."""

    reads_before = 0
    source_lang, target_lang = "en", "de"

    def __init__(self):
        self.asked = []

    def stream(self, lines, options):
        assert len(options.protect) == len(options.documents) == len(lines)
        self.asked += lines
        return upper_case_translator(split_sentences=False).stream(lines, options)


def test_a_text_that_occurs_again_is_translated_once():
    page = "<p>one<p>two <b>one</b><p>one<p><i>one</i><p>a <code>x</code><p>a <code>y</code>"
    translator = Counting()
    pieces = parse(page, "html", ("en", "de"), "f")
    parts = list(translate_pieces(translator, pieces))
    assert translator.asked == ["one", "two one", "a x", "a y"]
    assert "".join(part.written for part in parts) == (
        "<p>ONE<p>TWO <b>ONE</b><p>ONE<p><i>ONE</i><p>A <code>x</code><p>A <code>y</code>"
    )
    assert [pair for part in parts for pair in part.pairs][:2] == [("one", "ONE"), ("two one", "TWO ONE")]
    rest = Counting()
    assert [part.written for part in translate_pieces(rest, pieces, done=2)] == [p.written for p in parts[2:]]
    assert rest.asked == ["one", "a x", "a y"]


def test_a_document_of_200_mb_is_refused_in_one_line():
    with pytest.raises(
        InputError, match="a.html: must have at most 50,000,000 bytes of text, but has 2"
    ) as error:
        read_document(b"<p>x" * 50_000_000, "html", ("en", "de"), "a.html")
    assert "\n" not in str(error.value)
