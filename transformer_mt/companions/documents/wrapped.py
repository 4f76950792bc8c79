"""Plain text whose paragraphs are divided into lines: a paragraph is one text, and is divided again."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import ClassVar

from transformer_mt.companions.documents.markup.inline_run import pieces_of_run
from transformer_mt.companions.documents.markup.marked_text import MarkedText, Piece, PlainSpelling
from transformer_mt.companions.documents.markup.tokens import Token

_LINE = re.compile(r"[^\n]*(?:\n|\Z)")
_START = re.compile(r"[ \t]*(?:(?:[-*+•–—]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)])[ \t]+|(?:>[ \t]?)+)?")
"""Indentation, and what begins an item of a list or a quotation."""
_SHORT = 0.6
"""A line of less than this share of the longest one ends a paragraph."""


def parse_wrapped(text: str) -> list[Piece]:
    """The pieces of a text. A paragraph ends before a blank line, an item of a list, a line of another
    indentation, and after a short line that ends a sentence.
    """
    lines = [line for line in _LINE.findall(text) if line]
    widest = max((len(line.rstrip()) for line in lines), default=0)
    pieces: list[Piece] = []
    group: list[str] = []
    for line in lines:
        if group and _begins(group, line, widest):
            pieces += _of_paragraph(group, widest)
            group = []
        group.append(line)
    return [*pieces, *_of_paragraph(group, widest)] if group else pieces


def _begins(group: list[str], line: str, widest: int) -> bool:
    """True if a paragraph begins with the line, after those of the group."""
    last = group[-1].rstrip()
    if not line.strip() or not last:
        return True
    start, before = _start(line), _start(group[-1])
    if start.strip() and not start.strip().startswith(">"):
        return True
    same = start == before if len(group) > 1 else start == before or start == " " * len(before)
    return not same or (len(last) < _SHORT * widest and last.endswith((".", "!", "?", ":")))


def _start(line: str) -> str:
    match = _START.match(line)
    assert match, "the pattern matches the empty text"
    return match[0]


def _of_paragraph(lines: list[str], widest: int) -> Iterator[Piece]:
    """The pieces of a paragraph. What begins its further lines (indentation, `>`) counts as white space
    between the words.
    """
    first = _start(lines[0])
    yield first
    rest = "".join([lines[0][len(first) :], *lines[1:]])
    starts = [_start(line) for line in lines[1:]]
    spelling = _WrappedSpelling(starts)
    hanging = starts[0] if starts else " " * len(first) if not first.strip().startswith(">") else first
    finish = partial(_in_lines, first=first, hanging=hanging, widest=widest, lines=len(lines))
    for piece in pieces_of_run([Token("text", rest)], lambda token: [token.raw], spelling):
        yield replace(piece, finish=finish) if isinstance(piece, MarkedText) else piece


class _WrappedSpelling(PlainSpelling):
    """Text in which a line end and the beginning of the next line are white space."""

    special: ClassVar = "\n"

    def __init__(self, starts: list[str]) -> None:
        self._starts = starts

    def units(self, raw: str) -> Iterator[tuple[str, str]]:
        starts = iter(self._starts)
        position = 0
        while position < len(raw):
            end = position + 1
            if raw[position] == "\n":
                start = next(starts, "")
                end += len(start) if raw.startswith(start, end) else 0
            yield raw[position], raw[position:end]
            position = end


def _in_lines(body: str, first: str, hanging: str, widest: int, lines: int) -> str:
    """The translation with its own line breaks, if it has as many lines as the source and none is too long;
    otherwise wrapped anew.
    """
    lines_of_text = (first + body).splitlines()
    if lines == 1 or (len(lines_of_text) == lines and max(map(len, lines_of_text)) <= widest):
        return body
    ending = "\r\n" if "\r\n" in body else "\n"
    words = " ".join(re.sub(rf"[ \t]*\r?\n{re.escape(hanging)}", " ", body).split())
    wrapped = textwrap.wrap(
        words, max(widest, 20), initial_indent=" " * len(first), subsequent_indent=hanging,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return ending.join(wrapped)[len(first) :]
