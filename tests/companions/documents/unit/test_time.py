"""Twice the objects take at most two and a half times as long to read and to write back, in every format."""

import gc
import time
from threading import Event

import pytest

from transformer_mt.companions.documents.document_translation import parse
from transformer_mt.companions.documents.markup.tokens import StoppedError
from transformer_mt.companions.documents.office.documents import parse_odf
from transformer_mt.companions.documents.office.ooxml import parse_ooxml
from transformer_mt.companions.documents.read import read_document

ODF, WORD, CUE = "<o xmlns:text='t'>{}</o>", "<w:d xmlns:w='w'>{}</w:d>", "00:00:01,000 --> 00:00:02,000\n"
FIELD = "".join(f"<w:r><w:fldChar w:fldCharType='{kind}'/></w:r>" for kind in ("begin", "separate", "end"))
BOX = "<w:r><w:pict><w:txbxContent><w:p><w:r><w:t>cat</w:t></w:r></w:p></w:txbxContent></w:pict></w:r>"
UNIT = "<xliff><file><trans-unit><source>{}</source></trans-unit></file></xliff>"


def in_paragraph(part):
    return WORD.format("<w:p>{}</w:p>"), f"<w:r><w:t>dog</w:t></w:r>{part}"


SHAPES = {
    **{
        f"odt {name}": (parse_odf, ODF.format("<text:p>{}</text:p>"), f"dog{part}")
        for name, part in {
            "breaks": "<text:line-break/>", "spans": "<text:span>cat</text:span>", "lines": "\n",
            "notes": "<text:note><text:p>cat</text:p></text:note>",
        }.items()
    },
    "odt lists": (parse_odf, ODF, "<text:list><text:p>dog</text:p></text:list>"),
    **{
        f"docx {name}": (parse_ooxml, *in_paragraph(part))
        for name, part in {
            "tabs": "<w:r><w:tab/></w:r>", "boxes": BOX, "fields": FIELD,
            "bold": "<w:r><w:rPr/><w:t>a</w:t></w:r>",
            "ruby": "<w:r><w:ruby><w:rt/><w:rubyBase><w:r><w:t>a</w:t></w:r></w:rubyBase></w:ruby></w:r>",
            "controls": "<w:sdt><w:sdtContent><w:r><w:t>a</w:t></w:r></w:sdtContent></w:sdt>",
        }.items()
    },
    "docx breaks in a run": (parse_ooxml, WORD.format("<w:p><w:r>{}</w:r></w:p>"), "<w:t>dog</w:t><w:br/>"),
    "docx cells": (parse_ooxml, WORD, "<w:tc><w:p><w:r><w:t>dog</w:t></w:r></w:p></w:tc>"),
    "xlsx strings": (parse_ooxml, "<sst>{}</sst>", "<si><t>dog</t></si>"),
    "xlsx runs": (parse_ooxml, "<sst><si>{}</si></sst>", "<r><t>dog</t></r>"),
    **{
        f"html {name}": ("html", "{}", part)
        for name, part in {
            "images": "word<img>", "alts": "<img alt='dog'>word ", "open bold": "<b>dog ",
            "open code": "<code>x dog ", "lists": "<ul><li>dog", "open items": "<li><p>dog",
            "open divisions": "<div>", "stray ends": "<p>x</div>", "open objects": "dog <svg>",
            "comments": "dog <!-- x -->", "templates": "dog {{ ",
        }.items()
    },
    "srt cues": ("srt", "{}", f"1\n{CUE}dog\n\n"),
    "srt tags": ("srt", f"1\n{CUE}{{}}", "<i>dog</i> "),
    "srt remarks": ("srt", f"1\n{CUE}{{}}", "[dog "),
    "vtt cues": ("vtt", "WEBVTT\n\n{}", f"{CUE.replace(',', '.')}dog\n\nNOTE cat\n\n"),
    **{
        f"markdown {name}": ("markdown", "{}", part)
        for name, part in {
            "paragraphs": "dog\n\n", "open links": "[dog ", "items": "- dog\n", "mathematics": "$dog ",
            "lines of orders": "{{% a %}}\ndog\n\n", "open orders": "{{< a ", "endless orders": "{%     ",
            "open directives": "```{note}\n", "directives": "```{note} dog\ncat\n```\n\n",
            "callouts": "> [!tip] dog\n> cat\n\n", "open struck": "~~dog ",
            "footnotes": "dog[^a]\n\n[^a]: cat\n\n",
        }.items()
    },
    "wrapped lines": ("wrapped", "{}", "dog cat\n"),
    "json plurals": ("json", '[{{}"z": 0}]', '"a_one": "dog", "a_other": "dogs", '),
    "po entries": ("po", "{}", 'msgid "dog"\nmsgstr ""\n\n'),
    "xliff units": ("xliff", "<xliff>{}</xliff>", "<trans-unit><source>dog</source></trans-unit>"),
    "xliff groups": ("xliff", UNIT, "<g>dog</g> "),
    "android": ("android", "<resources>{}</resources>", "<string name='a'>dog</string>"),
    "android codes": ("android", "<resources><string>{}</string></resources>", "dog <b>cat</b> "),
}  # fmt: skip


def seconds(shape, count):
    """The least of two readings."""
    how, around, part = shape
    before, after = around.replace("{}", "\0").split("\0")
    text, least = before + part * count + after, float("inf")
    for _ in range(2):
        begin = time.process_time()
        pieces = how(text, "x") if callable(how) else parse(text, how, ("en", "de"), "x")
        for piece in pieces:
            if not isinstance(piece, str):
                piece.render()
        least = min(least, time.process_time() - begin)
    return least


@pytest.mark.parametrize("name", SHAPES)
def test_time_grows_with_size_only(name):
    """Ratios, not seconds; one that noise spoilt is measured again."""
    gc.disable()
    try:
        count = 500
        while seconds(SHAPES[name], count) < 0.005:
            count *= 2
        size, ratios = 4 * count, []
        while not ratios or (ratios[-1] >= 2.5 and len(ratios) < 8):
            ratios.append(seconds(SHAPES[name], size) / seconds(SHAPES[name], size // 2))
        assert ratios[-1] < 2.5, f"{size:,} objects take {min(ratios):.1f} times as long as half of them"
    finally:
        gc.enable()


def test_another_thread_can_stop_the_reading():
    stop = Event()
    stop.set()
    for raw, format in ((b"<p>dog", "html"), (b"<xliff/>", "xliff"), (b"dog", "markdown")):
        with pytest.raises(StoppedError):
            read_document(raw, format, ("en", "de"), "x", stop=stop)
        read_document(raw, format, ("en", "de"), "x")  # and the next one is read
