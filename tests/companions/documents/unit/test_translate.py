"""Documents through a translator: what is asked of it, and what comes back."""

import io
import zipfile
from dataclasses import replace

import pytest

from tests.helpers.upper_case import upper_case_translator
from transformer_mt.companions.documents.document_translation import parse, translate_pieces
from transformer_mt.companions.documents.markup.marked_text import MarkedText
from transformer_mt.companions.documents.read import read_document
from transformer_mt.companions.documents.strings.placeholders import CHOICES
from transformer_mt.errors import InputError


class Counting:
    """A translator that counts the texts it is asked for."""

    source_lang, target_lang = "en", "de"

    def __init__(self):
        self.asked = []

    def stream(self, lines, options):
        assert len(options.protect) == len(lines)
        self.asked += lines
        return upper_case_translator(split_sentences=False).stream(lines, options)


def in_german(raw, format, text):
    """The file with this translation of all its texts."""
    document = read_document(raw, format, ("en", "de"), "f")
    pieces = (
        piece if isinstance(piece, str) else replace(piece, text=text, marks=()).render()
        for piece in document.pieces
    )
    return document.written("".join(pieces))


@pytest.mark.parametrize("content", ["The menu sleeps.", "The café sleeps."])
@pytest.mark.parametrize("format", ["xliff", "android", "epub"])
def test_xml_is_read_back_as_it_was_written_in_the_encoding_that_it_declares(format, content):
    """The source may be all ASCII, and browsers would take ISO-8859-1 for Windows-1252."""
    etree = pytest.importorskip("lxml.etree")
    inside = {
        "xliff": f"<xliff><file><trans-unit><source>{content}</source></trans-unit></file></xliff>",
        "android": f'<resources><string name="a">{content}</string></resources>',
        "epub": f'<html xmlns="http://www.w3.org/1999/xhtml"><body><p>{content}</p></body></html>',
    }[format]
    raw = f'<?xml version="1.0" encoding="ISO-8859-1"?>\n{inside}'.encode("latin-1")
    packed = io.BytesIO()
    if format == "epub":
        with zipfile.ZipFile(packed, "w") as file:
            file.writestr("META-INF/container.xml", "<c/>")
            file.writestr("a.xhtml", raw)
        raw = packed.getvalue()
    text = "Das „Menü“ – 5 €."
    written = in_german(raw, format, text)
    if format == "epub":
        written = zipfile.ZipFile(io.BytesIO(written)).read("a.xhtml")
    assert text in "".join(etree.fromstring(written).itertext())


def test_a_suggestion_is_no_translation_of_its_unit():
    """Tools keep translations of similar sentences with a unit, with targets of their own."""
    unit = "<trans-unit><source>A dog.</source>{}</trans-unit>"
    suggestion = "<alt-trans><source>A cat.</source><target>Eine Katze.</target></alt-trans>"
    xliff = '<xliff version="1.2"><file>{}</file></xliff>'
    written = in_german(xliff.format(unit.format(suggestion)).encode(), "xliff", "Ein Hund.").decode()
    assert unit.format(f"<target>Ein Hund.</target>{suggestion}") in written


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


@pytest.mark.parametrize(
    "format, written, expected",
    [
        (
            "android",
            "<resources><string name='a'>\"one <!-- c --></string><style name='s'><item name='f'>sans</item>"
            "</style><string name='b'> \"two three\" </string><dimen name='d'>two dp</dimen></resources>",
            "<resources><string name='a'>\"ONE, SO <!-- c --></string><style name='s'>"
            "<item name='f'>sans</item></style><string name='b'> \"TWO THREE, SO\" </string>"
            "<dimen name='d'>two dp</dimen></resources>",
        ),
        ("json", '{"a": "one\'s \\"two\\""}', '{"a": "ONE\'S \\"TWO\\", SO"}'),
        (
            "android",
            "<resources><string name='a'>\"it's\"</string></resources>",
            "<resources><string name='a'>\"IT\\'S, SO\"</string></resources>",
        ),
        ("wrapped", "one\r\r\ntwo\rthree\n", "ONE TWO THREE, SO\n"),
        (
            "markdown",
            "[![one two][ci-image]][ci-link] ![a [b] c](x)\n\n[ci-image]: x\n[ci-link]: y\n",
            "[![ONE TWO, SO][ci-image]][ci-link] ![A [B] C, SO](x)\n\n[ci-image]: x\n[ci-link]: y\n",
        ),
        (
            "xliff",
            '<xliff version="1.2"><file target-language="de"><trans-unit id="1">'
            "<source><![CDATA[one <b>two</b>]]></source><seg-source/></trans-unit></file></xliff>",
            '<xliff version="1.2"><file target-language="de"><trans-unit id="1">'
            "<source><![CDATA[one <b>two</b>]]></source><seg-source/>"
            "<target><![CDATA[ONE <b>TWO, SO</b>]]></target></trans-unit></file></xliff>",
        ),
        ("markdown", "one\u2028line\n\n*two*\n", "ONE\u2028LINE, SO\n\n*TWO, SO*\n"),
        (
            "po",
            '#, fuzzy\n#~ msgid "x"\n#~ msgstr "y"\n\n# z\nmsgid "a"\nmsgstr "done"\n',
            '#, fuzzy\n#~ msgid "x"\n#~ msgstr "y"\n\n# z\nmsgid "a"\nmsgstr "done"\n',
        ),
        ("po", '\ufeffmsgid "a"\nmsgstr ""\n', '\ufeffmsgid "a"\nmsgstr "A, SO"\n'),
        (
            "html",
            '<?xml version="1.0"?>\n<pre/><p>one <span id="p"/></p><p translate="no"/><code/>\xa0two',
            '<?xml version="1.0"?>\n<pre/><p>ONE, SO <span id="p"/></p><p translate="no"/><code/>\xa0TWO, SO',
        ),
        ("markdown", "the [b c]!\n\n[b c]: x\n", "THE [B C!, SO][b c]\n\n[b c]: x\n"),
        ("markdown", "[b\nc][]\n\n[b c]: x\n", "[B\nC, SO][b c]\n\n[b c]: x\n"),
        ("markdown", "![b c] ![d]\n\n[b c]: x\n", "![B C, SO][b c] ![D], SO\n\n[b c]: x\n"),
        ("markdown", "- [x] one\n\n[^1]: two b\n", "- [x] ONE, SO\n\n[^1]: TWO B, SO\n"),
        ("markdown", "$$a$$ one\n$$b$$\n", "$$a$$ ONE\n$$b$$, SO\n"),
        ("markdown", "one \\$HOME and \\$PATH 5$, not 6$\n", "ONE \\$HOME AND \\$PATH 5$, NOT 6$, SO\n"),
        ("markdown", "> [!NOTE]\n> one two.\n", "> [!NOTE]\n> ONE TWO., SO\n"),
        ("markdown", "+++\ntitle = 'x'\n+++\none\n", "+++\ntitle = 'x'\n+++\nONE, SO\n"),
        ("markdown", "::: note Title\none\n:::\n", "::: note TITLE, SO\nONE, SO\n:::\n"),
        ("markdown", "$$\n\\frac{alpha}{beta}\n$$\n\none\n", "$$\n\\frac{alpha}{beta}\n$$\n\nONE, SO\n"),
        (
            "html",
            "<p>{% if a %}one{% else %}two{% endif %}<p><?php if (a): ?>one<?php endif; ?>",
            "<p>{% if a %}ONE{% else %}TWO, SO{% endif %}<p><?php if (a): ?>ONE, SO<?php endif; ?>",
        ),
        (
            "html",
            '<title>one <?= $a ?> two</title><img alt="one <?= $a ?> two">',
            '<title>ONE <?= $A ?> TWO, SO</title><img alt="ONE <?= $A ?> TWO, SO">',
        ),
        (
            "android",
            "<resources><string name='a'><![CDATA[one > two & R&D; < 3]]></string></resources>",
            "<resources><string name='a'><![CDATA[ONE > TWO & R&D; < 3, SO]]></string></resources>",
        ),
        (
            "android",
            "<resources><string name='a'><![CDATA[it\\'s\\none &amp; <br/>]]></string></resources>",
            "<resources><string name='a'><![CDATA[IT\\'S\\nONE &amp;, SO <br/>]]></string></resources>",
        ),
        ("markdown", "one[^n] two\n\n[^n]: https://a.b\n", "ONE[^n] TWO, SO\n\n[^n]: https://a.b\n"),
        (
            "html",
            '<?xml version="1.0"?><p>see <a href=http://x.org/>the page</a> now</p>',
            '<?xml version="1.0"?><p>SEE <a href=http://x.org/>THE PAGE NOW, SO</a></p>',
        ),
        (
            "json",
            '{"$schema": "x", "a": {"message": "one", "description": "two"}, '
            '"b": {"message": "c", "hash": "d"}}',
            '{"$schema": "X, SO", "a": {"message": "ONE, SO", "description": "two"}, '
            '"b": {"message": "C, SO", "hash": "d"}}',
        ),
        (
            "json",
            '{"en": {"a": {"message": "one", "description": "two"}}}',
            '{"en": {"a": {"message": "ONE, SO", "description": "two"}}}',
        ),
        (
            "json",
            '{"message": "one", "description": "two", "a": [{"message": "c", "description": "d"}]}',
            '{"message": "ONE, SO", "description": "TWO, SO", '
            '"a": [{"message": "C, SO", "description": "D, SO"}]}',
        ),
        (
            "json",
            '{"a": {"t": "x", "e": {"message": "one", "description": "two"}}, "@x": "y", "b": ["z", "@z"]}',
            '{"a": {"t": "X, SO", "e": {"message": "ONE, SO", "description": "TWO, SO"}}, '
            '"@x": "y", "b": ["Z, SO", "@z"]}',
        ),
        (
            "json",
            '{"a": {"message": "one", "description": "two", "placeholders": {"p": {"content": "$1"}}}}',
            '{"a": {"message": "ONE, SO", "description": "two", "placeholders": {"p": {"content": "$1"}}}}',
        ),
    ],
)
def test_files_stay_what_they_are(format, written, expected):
    """With commas in brackets, characters that some take for line ends, a byte-order mark, XHTML."""
    document = read_document(written.encode(), format, ("en", "de"), "f")
    out = ""
    for piece in document.pieces:
        if isinstance(piece, str):
            out += piece
        else:
            text = piece.text.upper() + ", SO"
            out += replace(
                piece,
                text=text,
                marks=tuple(replace(m, end=len(text)) if m.closing else m for m in piece.marks),
            ).render()
    assert document.written(out).decode() == expected


FORMS = "{n, plural, one {# file} other {# files}}"


@pytest.mark.parametrize(
    "format, written",
    [
        ("json", f'{{"a": "{FORMS}"}}'),
        ("android", f"<resources><string name='a'><![CDATA[{FORMS}]]></string></resources>"),
        (
            "xliff",
            '<xliff version="1.2"><file target-language="de"><trans-unit id="1"><source>'
            f"{FORMS.replace('#', '<x/>')}</source></trans-unit><trans-unit id='2'>"
            f"<source>{FORMS}</source><target>{FORMS}</target></trans-unit></file></xliff>",
        ),
        ("po", f'msgid "{FORMS}"\nmsgstr ""\n\nmsgid "b {FORMS}"\nmsgstr "{FORMS}"\n'),
        ("po", f'#, fuzzy\nmsgid "a {FORMS}"\nmsgstr "b"\n'),
    ],
)
def test_messages_that_choose_between_forms_stay_and_are_counted(format, written):
    """But those that have a translation already are not."""
    document = read_document(written.encode(), format, ("en", "de"), "f")
    assert ("".join(document.pieces), document.stay[CHOICES]) == (written, 1)


def test_a_link_of_markdown_whose_text_stays_needs_no_label():
    text = "# [1.0.0] IS OUT\n\n[1.0.0]: https://a.b\n"
    parts = translate_pieces(Counting(), parse(text, "markdown", ("en", "de"), "f"))
    assert "".join(part.written for part in parts) == text
    text = "SEE [B][](NOTE).\n\n[B]: x\n"  # without its label it would be another link
    parts = translate_pieces(Counting(), parse(text, "markdown", ("en", "de"), "f"))
    assert "".join(part.written for part in parts) == text.replace("[B][]", "[B][B]")


@pytest.mark.parametrize(
    "source, target, expected",
    [
        ("We met on\nMay 1. as agreed", "We met on 1. May as agreed", "We met on\n1\\. May as agreed"),
        ("> one\n> two - three", "one - two three", "one\n> \\- two three"),
        ("one\n7. two", "one 7. two", "one\n7. two"),
    ],
)
def test_no_line_of_a_paragraph_of_markdown_becomes_an_item(source, target, expected):
    (text,) = (p for p in parse(source, "markdown", ("en", "de"), "f") if isinstance(p, MarkedText))
    assert replace(text, text=target).render() == expected


def test_what_is_no_catalogue_is_refused_by_its_first_line():
    with pytest.raises(InputError, match="f:1: must be an entry of a .po file, but is 'one'"):
        read_document(b'one\n# c\ntwo\n\nmsgid "a"\nmsgstr ""\n', "po", ("en", "de"), "f")


MATHEMATICS = "\\begin{align} a &= b \\end{align}"


@pytest.mark.parametrize(
    "text, texts",
    [
        ("import Tabs from '@theme/Tabs';\nimport b from \"x\"\n\na dog\n", ["a dog"]),
        ("export const a = 3;\n\nimport a dog. It is old.\n", ["import a dog. It is old."]),
        ("a dog\n{: .note .warning}\n\n## a title {#id}\n", ["a dog", "a title"]),
        ('??? question "a dog"\n\n!!! note\n\n???+ tip "a cat"\n', ["a dog", "a cat"]),
        ("see [[Other page]] and [[Other page|here]] now\n", ["see [[Other page]] and here now"]),
        (f"it is {MATHEMATICS} then\n", [f"it is {MATHEMATICS} then"]),
        ("[a [b]](c) [[d](e)]\n", ["a [b] [d]"]),
        (
            '=== "a tab"\n\n    its text\n\n    ```py\n    code\n    ```\n\n[TOC]\n\n'
            '--8<-- "a/file.md"\n\nan end\n',
            ["a tab", "its text", "an end"],
        ),
    ],
)
def test_lines_of_markdown_that_are_code_in_its_dialects_stay(text, texts):
    """MDX, kramdown, mkdocs, wikis, LaTeX: what stays is markup, or a literal within the text."""
    pieces = parse(text, "markdown", ("en", "de"), "f")
    assert "".join(piece if isinstance(piece, str) else piece.render() for piece in pieces) == text
    assert [piece.text for piece in pieces if isinstance(piece, MarkedText)] == texts
    parts = translate_pieces(upper_case_translator(), pieces)
    written = "".join(part.written for part in parts)
    for code in ("[[Other page]]", "[[Other page|", MATHEMATICS, "{#id}", "{: .note"):
        assert written.count(code) == text.count(code)


def test_words_that_were_taken_out_are_no_part_of_the_sentence():
    html = "<p>The dog sees the <del>cat</del><ins>bird</ins>, <s>not</s> a <b>fox</b>.</p>"
    pieces = parse(html, "html", ("en", "de"), "f")
    (text,) = (piece for piece in pieces if isinstance(piece, MarkedText))
    assert text.text == "The dog sees the bird, a fox."
    assert [inner.text for inner in text.inner] == ["cat", "not"]
    assert "".join(piece.render() if isinstance(piece, MarkedText) else piece for piece in pieces) == html
