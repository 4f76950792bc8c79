"""Subtitles in SubRip format (.srt): the times stay, the text is translated.

A sentence that runs over several subtitles is translated as one, and the breaks between its subtitles are
placed by the alignment, as markup is.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial

from transformer_mt.documents.marked_text import Mark, MarkedText, Piece
from transformer_mt.errors import InputError
from transformer_mt.text.unsegmented import has_no_word_spaces

_MOST_SUBTITLES = 6
"""The most subtitles of one sentence."""
_LINE, _WIDE_LINE = 42, 20
"""Usual characters of a line; of Chinese, say."""
_TAG = re.compile(r"<(/?)([a-zA-Z]+)[^<>]*>|\{\\[^{}]*\}")
_ATOM = re.compile(r"\s*(?:<[^<>]*>|\{\\[^{}]*\}|\S)+")
_WIDE_ATOM = re.compile(r"\s*(?:(?:<[^<>]*>|\{\\[^{}]*\})+|\S)")
_DASH = re.compile(r"\s*[-–—]\s*")
_DASH_AFTER_TAGS = re.compile(rf"(?:{_TAG.pattern})*{_DASH.pattern}")
_AROUND = re.compile(r"((?:[♪♫#*\s]|\{\\[^{}]*\})*)(.*?)([♪♫#*\s]*)", re.DOTALL)
_ENDS = re.compile(r"[.!?…。！？:;\"”»)\]♪]\s*$")
_BREAK = "\ufdd0"


def parse_srt(text: str, target_lang: str, name: str = "the subtitles") -> list[Piece]:
    """The subtitles in pieces. Written one after the other, they are the file,
    with its numbers and times in their usual form. InputError if it is none.
    """
    try:
        import srt
    except ImportError:
        raise InputError(
            "subtitles need the package srt, which is not installed; install transformer_mt[documents]"
        ) from None
    text = text.removeprefix("\ufeff").replace(_BREAK, "")
    try:
        subtitles = list(srt.parse(text))
    except srt.SRTParseError as error:
        line = text.count("\n", 0, error.expected_start) + 1
        raise InputError(f"{name}: must be subtitles in SRT format, but are not in line {line}") from None
    except ValueError as error:
        raise InputError(f"{name}: must be subtitles in SRT format, but: {error}") from None
    wide = has_no_word_spaces(target_lang)
    pieces: list[Piece] = []
    group: list[tuple[str, str]] = []
    for subtitle in subtitles:
        content = subtitle.content
        subtitle.content = _BREAK
        head = subtitle.to_srt(strict=False).partition(_BREAK)[0]
        if group and not (len(group) < _MOST_SUBTITLES and _continues(group[-1][1], content)):
            pieces += _pieces(group, wide)
            group = []
        group.append((head, content))
    return [*pieces, *_pieces(group, wide)]


def _continues(before: str, after: str) -> bool:
    """Whether a sentence continues in the next subtitle."""
    texts = [_TAG.sub("", text).strip() for text in (before, after)]
    if not all(texts) or any(_lines_of_speakers(text) for text in texts):
        return False
    return not _ENDS.search(texts[0]) and texts[1].lstrip("….").strip()[:1].islower()


def _lines_of_speakers(content: str) -> bool:
    return any(_DASH.match(_TAG.sub("", line)) for line in content.split("\n"))


def _pieces(group: Sequence[tuple[str, str]], wide: bool) -> Iterator[Piece]:
    """The subtitles of one sentence, each a head (number and times) and a content."""
    if not group:
        return
    head, content = group[0]
    yield head
    if len(group) == 1 and _lines_of_speakers(content):
        for number, line in enumerate(content.split("\n")):
            dash = _DASH_AFTER_TAGS.match(line)
            prefix = dash.group() if dash else ""
            yield "\n" * (number > 0) + prefix
            yield from _text([("", line[len(prefix) :])], wide)
    else:
        yield from _text([("", content), *group[1:]], wide)
    yield "\n\n"


def _text(group: Sequence[tuple[str, str]], wide: bool) -> Iterator[Piece]:
    """The contents as one text; where there is nothing to translate, as they are."""
    builder = _Builder()
    for head, content in group:
        if head:
            builder.add_break()
        builder.add(content)
    if not any(map(str.isalpha, builder.text)):
        yield from (head + content for head, content in group)
        return
    heads = [head for head, _ in group[1:]]
    lines = [_TAG.sub("", content).strip().split("\n") for _, content in group]
    yield MarkedText(
        builder.text, tuple(builder.marks), builder.before, builder.after,
        finish=partial(_written, heads=heads, lines=lines, wide=wide),
    )  # fmt: skip


class _Builder:
    """The text of a sentence's subtitles on one line, with their tags and breaks as marks."""

    def __init__(self) -> None:
        self.text, self.before, self.after = "", "", ""
        self.marks: list[Mark] = []
        self._is_first = True
        self._open: list[tuple[str, str, int, list[Mark]]] = []

    def add(self, content: str) -> None:
        around = _AROUND.fullmatch(content)
        assert around is not None
        if self._is_first:
            self.before, self._is_first = around[1], False
        elif around[1].strip():
            self._point(around[1].strip())
        self.after = around[3]
        start, inner = 0, around[2]
        for tag in _TAG.finditer(inner):
            self._append(inner[start : tag.start()])
            self._tag(tag)
            start = tag.end()
        self._append(inner[start:])
        while self._open:
            self._give_up()

    def add_break(self) -> None:
        if self.after.strip():
            self._point(self.after.strip())
        self._append(" ")
        self._marks.append(Mark(len(self.text), len(self.text), _BREAK))

    @property
    def _marks(self) -> list[Mark]:
        return self._open[-1][3] if self._open else self.marks

    def _append(self, text: str) -> None:
        text = re.sub(r"\s+", " ", text)
        self.text += text.lstrip() if not self.text or self.text.endswith(" ") else text

    def _tag(self, tag: re.Match[str]) -> None:
        if tag[2] is None or not (tag[1] or f"</{tag[2]}>" in tag.string[tag.end() :]):
            self._point(tag[0])  # a position such as {\an8}, or a tag that is not closed
        elif not tag[1]:
            self._open.append((tag[2], tag[0], len(self.text), []))
        elif tag[2] in [name for name, *_ in self._open]:
            while self._open[-1][0] != tag[2]:
                self._give_up()
            _, opening, begin, children = self._open.pop()
            self._marks.append(Mark(begin, len(self.text), opening, tag[0], tuple(children)))
        else:
            self._point(tag[0])

    def _give_up(self) -> None:
        """The last open tag is not closed where it could be: it is a mark without words."""
        _, opening, begin, children = self._open.pop()
        self._marks.extend([Mark(begin, begin, opening), *children])

    def _point(self, written: str) -> None:
        self._marks.append(Mark(len(self.text), len(self.text), written))


def _written(rendered: str, heads: Sequence[str], lines: Sequence[Sequence[str]], wide: bool) -> str:
    """The translation as subtitles: divided at the breaks, in about as many lines as the source had."""
    parts = [part.strip() for part in rendered.split(_BREAK)]
    if not all(_TAG.sub("", part).strip() for part in parts):
        parts = _in_proportion(rendered.replace(_BREAK, ""), [len(" ".join(own)) for own in lines], wide)
    written = [_in_lines(part, len(own), wide) for part, own in zip(parts, lines)]
    return "".join(
        [written[0], *(f"\n\n{head}{part}" for head, part in zip(heads, written[1:], strict=True))]
    )


def _in_lines(text: str, lines: int, wide: bool) -> str:
    """The text in `lines` lines, or in fewer where it is short, of about the same length."""
    length = len(_TAG.sub("", text))
    width = _WIDE_LINE if wide else _LINE
    count = max(1, min(max(lines, 2), -(-length // width)))
    return "\n".join(_in_proportion(text, [1] * count, wide))


def _in_proportion(text: str, sizes: Sequence[int], wide: bool) -> list[str]:
    """The text in parts of about these relative sizes, divided between words; never within a tag."""
    atoms = (_WIDE_ATOM if wide else _ATOM).findall(text)
    parts, total, done = [""], sum(sizes), 0
    length = sum(len(_TAG.sub("", atom)) for atom in atoms)
    for position, atom in enumerate(atoms):
        size = len(_TAG.sub("", atom))
        target = length * sum(sizes[: len(parts)]) / max(1, total)
        remaining = len(atoms) - position
        ends = done + size / 2 > target or remaining <= len(sizes) - len(parts)
        may_end = parts[-1].strip() and not atom.startswith(("</", "，", "。", "、"))
        if may_end and ends and len(parts) < len(sizes):
            parts.append("")
        parts[-1] += atom
        done += size
    return [*(part.strip() for part in parts), *[""] * (len(sizes) - len(parts))]
