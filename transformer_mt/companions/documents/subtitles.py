"""Subtitles in SubRip (.srt) and WebVTT (.vtt): numbers, times, settings, tags, notes and line ends stay.

A sentence that runs over several subtitles is translated as one, and the breaks between its subtitles are
placed by the alignment, as markup is.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from transformer_mt.companions.documents.markup.inline_run import pieces_of_run
from transformer_mt.companions.documents.markup.marked_text import (
    BREAK,
    BYTE_ORDER_MARK,
    READING,
    MarkedText,
    Piece,
    PlainSpelling,
    Spelling,
    Stays,
)
from transformer_mt.companions.documents.markup.tokens import Token
from transformer_mt.errors import InputError
from transformer_mt.text.languages import has_no_word_spaces
from transformer_mt.text.sentences import has_words

_MOST_SUBTITLES = 6
"""The most subtitles of one sentence."""
_LONGEST_GAP = 2.0
"""Seconds between two subtitles of one sentence."""
_LEAST_ENDS = 0.1
"""If a smaller share of a file's subtitles end as sentences do, none are joined into one sentence."""
_LINE, _WIDE_LINE = 42, 20
"""The usual number of characters in a line, and in a line of wide characters such as Chinese."""
_TIME = r"(?:(?P<h{0}>\d{{1,3}}):)?(?P<m{0}>\d{{1,2}}):(?P<s{0}>\d{{1,2}})[,.](?P<ms{0}>\d{{1,3}})"
_TIMES = rf"[ \t]*{_TIME.format(1)}[ \t]*-{{1,2}}>[ \t]*{_TIME.format(2)}(?P<rest>[^\r\n]*)"
_HEAD = re.compile(rf"^(?P<number>[ \t]*\d+[ \t]*\r?\n)?{_TIMES}(?P<end>\r?\n|\Z)", re.MULTILINE)
_TAG = re.compile(r"<rt(?:\.[^<>]*)?>[^<>]*(?:</rt>)?|<(/?)([a-zA-Z]++)[^<>]*+>|\{\\[^{}]*\}|<\d\d[\d:.]*>")
_TAGS = rf"(?:{_TAG.pattern.replace('(/?)([a-zA-Z]++)', '/?[a-zA-Z]++')})*"
_ATOM = re.compile(r"\s*(?:<[^<>]*>|\{\\[^{}]*\}|\S)+")
_WIDE_ATOM = re.compile(r"\s*(?:(?:<[^<>]*>|\{\\[^{}]*\})+|\S)")
_NOTES = "♪♫♩♬#*¶"
_NOTES_AND_SPACE = f"{_NOTES} \t\r\n\f\v\u00a0"
# What begins a line of its own: a dash or >> of a speaker or a name in capitals, notes, a remark in brackets.
_CAPITALS = "A-ZÀ-ÖØ-ÞΑ-ΩА-Я"
_NAME = rf"[{_CAPITALS}][{_CAPITALS}0-9 .'’-]{{0,30}}:(?=\s)"
_SPEAKER = re.compile(rf"{_TAGS}\s*(?:(?:[-–—‐]+|>{{2,}})\s*(?:{_NAME})?|{_NAME})\s*")
_NOTED = re.compile(rf"{_TAGS}\s*[{_NOTES}]")
_REMARK = re.compile(rf"({_TAGS}\s*)([\[(（【][^\[\]()（）【】]*[\])）】])(\s*)")
_ENDS = re.compile(r"[.!?…。！？:;\"”»)\]♪]\s*$")
_SENTENCE_ENDS = re.compile(r"[.!?…。！？][\"”»)\]']*\s*$")


@dataclass(frozen=True)
class Cue:
    """A subtitle."""

    head: str
    """Number and times, as they are written."""
    content: str
    gap: str
    """The line ends after it."""
    begin: float
    end: float

    @property
    def plain(self) -> str:
        return _TAG.sub("", self.content).strip()


def parse_srt(text: str, target_lang: str, name: str = "the subtitles") -> list[Piece]:
    """The subtitles in pieces. Their concatenation is the file, except that times without hours get hours.
    InputError if the text is not in SRT format.
    """
    mark = text[: text.startswith(BYTE_ORDER_MARK)]
    before, cues = _cues(text[len(mark) :].replace(BREAK, ""), name)
    return pieces_of_cues(mark + before, cues, target_lang, PlainSpelling)


def pieces_of_cues(
    before: str, cues: Sequence[Cue], target_lang: str, spelling: Callable[[], PlainSpelling]
) -> list[Piece]:
    """The text `before` the subtitles, and the subtitles in pieces. `spelling` makes one text's spelling."""
    texts = _Texts(has_no_word_spaces(target_lang), spelling)
    spoken = [cue.plain for cue in cues if any(map(str.isalpha, cue.plain))]
    ends = sum(_SENTENCE_ENDS.search(plain) is not None for plain in spoken)
    may_continue = ends >= _LEAST_ENDS * len(spoken)
    pieces: list[Piece] = [before]
    group: list[Cue] = []
    for cue in cues:
        if group and not (may_continue and len(group) < _MOST_SUBTITLES and _continues(group[-1], cue)):
            pieces += texts.of_group(group)
            group = []
        group.append(cue)
    return [*pieces, *texts.of_group(group)]


def _cues(text: str, name: str) -> tuple[str, list[Cue]]:
    """The text before the first subtitle, and the subtitles."""
    heads = list(_HEAD.finditer(text))
    before = text[: heads[0].start()] if heads else text
    if before.strip():
        line = text.count("\n", 0, len(before) - len(before.lstrip())) + 1
        raise InputError(f"{name}: must be subtitles in SRT format, but line {line} is not")
    cues = []
    for head, following in zip(heads, [*heads[1:], None]):
        content = text[head.end() : following.start() if following else len(text)]
        stripped = content.rstrip("\r\n")
        if "-->" in stripped:
            line = text.count("\n", 0, head.end() + content.index("-->")) + 1
            raise InputError(f"{name}: must have times such as 00:00:01,000 in line {line}, but has others")
        begin, end = seconds_of(head, 1), seconds_of(head, 2)
        cues.append(Cue(_with_hours(head), stripped, content[len(stripped) :], begin, end))
    return before, cues


def seconds_of(head: re.Match[str], n: int) -> float:
    milliseconds = int(head[f"ms{n}"].ljust(3, "0"))
    return 3600 * int(head[f"h{n}"] or 0) + 60 * int(head[f"m{n}"]) + int(head[f"s{n}"]) + milliseconds / 1000


def _with_hours(head: re.Match[str]) -> str:
    """Number and times. Times without hours get hours, because players misread them."""
    if head["h1"] is not None and head["h2"] is not None:
        return head[0]
    times = [
        f"{int(head[f'h{n}'] or 0):02}:{int(head[f'm{n}']):02}:{int(head[f's{n}']):02},"
        + head[f"ms{n}"].ljust(3, "0")
        for n in (1, 2)
    ]
    return f"{head['number'] or ''}{' --> '.join(times)}{head['rest']}{head['end']}"


def _continues(before: Cue, after: Cue) -> bool:
    """True if a sentence continues in the next subtitle."""
    texts = [cue.plain for cue in (before, after)]
    if not all(texts) or any(_has_own_lines(cue.content) for cue in (before, after)):
        return False
    if not all(map(has_words, texts)) or abs(after.begin - before.end) > _LONGEST_GAP:
        return False
    return not _ENDS.search(texts[0]) and texts[1].lstrip("….").strip()[:1].islower()


def _has_own_lines(content: str) -> bool:
    """True if each line is a text of its own: lines of speakers, lyrics, or lines with remarks."""
    lines = [line for line in content.split("\n") if line.strip()]
    has_blank_lines = len(content.split("\n")) > len(lines)
    if has_blank_lines or any(_SPEAKER.match(line) or _REMARK.match(line) for line in lines):
        return True
    return len(lines) > 1 and all(map(_NOTED.match, lines))


@dataclass(frozen=True)
class _Texts:
    """Makes the texts of subtitles."""

    wide: bool
    """Whether the target's lines are of wide characters."""
    spelling: Callable[[], PlainSpelling]

    def of_group(self, group: Sequence[Cue]) -> Iterator[Piece]:
        """The subtitles of one sentence, or one subtitle."""
        if not group:
            return
        yield group[0].head
        if len(group) == 1 and _has_own_lines(group[0].content):
            for number, line in enumerate(group[0].content.split("\n")):
                yield "\n" * (number > 0)
                yield from self._of_line(line, group[0].gap)
        else:
            yield from self._of_text(group)
        yield group[-1].gap

    def _of_line(self, line: str, gap: str) -> Iterator[Piece]:
        """A line that is a text of its own; a dash or notes before it stay, remarks are texts of their own.
        `gap` are the line ends after its subtitle.
        """
        start = _SPEAKER.match(line)
        if start:
            yield start[0]
            line = line[start.end() :]
        while remark := _REMARK.match(line):
            yield remark[1] + remark[2][0]
            yield from self._of_text([Cue("", remark[2][1:-1], gap, 0, 0)])
            yield remark[2][-1] + remark[3]
            line = line[remark.end() :]
        yield from self._of_text([Cue("", line, gap, 0, 0)])

    def _of_text(self, group: Sequence[Cue]) -> Iterator[Piece]:
        """Join the contents of the subtitles into one text to translate; contents without words stay."""
        run: list[Token] = []
        for number, cue in enumerate(group):
            if number:
                run.append(Token("object", BREAK))
            tokens = _with_notes_apart(list(_tokens(cue.content)))
            run += reversed(_with_notes_apart(tokens[::-1], at_end=True))
        between = [before.gap + after.head for before, after in itertools.pairwise(group)]
        lines = [cue.content.split("\n") for cue in group]
        line_end = "\r\n" if "\r" in group[0].gap + group[0].head + group[0].content else "\n"
        breaks = iter(between)
        for piece in pieces_of_run(run, _as_written, self.spelling()):
            if isinstance(piece, MarkedText):
                yield replace(
                    piece,
                    finish=partial(_written, between=between, lines=lines, wide=self.wide, line_end=line_end),
                )
            else:
                yield next(breaks) if piece == BREAK else piece


def _as_written(token: Token) -> list[Piece]:
    is_reading = token.name == "rt" and has_words(token.raw.split(">")[1].split("<")[0])
    return [Stays(token.raw, READING) if is_reading else token.raw]


def _with_notes_apart(tokens: Sequence[Token], at_end: bool = False) -> list[Token]:
    """Split notes (♪) off the first words, as tokens that are not text. With `at_end` the tokens are in
    reverse order, and the notes follow the last words.
    """
    tokens_out: list[Token] = []
    for i, token in enumerate(tokens):
        if token.kind != "text":
            tokens_out.append(token)
            continue
        words = token.raw.rstrip(_NOTES_AND_SPACE) if at_end else token.raw.lstrip(_NOTES_AND_SPACE)
        edge = token.raw[len(words) :] if at_end else token.raw[: len(token.raw) - len(words)]
        if edge:
            tokens_out.append(Token("object" if edge.strip() else "text", edge))
        if words:
            return [*tokens_out, Token("text", words), *tokens[i + 1 :]]
    return tokens_out


def _tokens(content: str) -> Iterator[Token]:
    """Split a content into text and tags."""
    start = 0
    for tag in _TAG.finditer(content):
        if tag.start() > start:
            yield Token("text", content[start : tag.start()])
        if tag[2] is None:
            yield Token("object", tag[0], "rt" if tag[0].startswith("<rt") else "")
        else:
            yield Token("end" if tag[1] else "start", tag[0], tag[2].lower())
        start = tag.end()
    if start < len(content):
        yield Token("text", content[start:])


def _written(
    rendered: str, between: Sequence[str], lines: Sequence[Sequence[str]], wide: bool, line_end: str
) -> str:
    """The translation as subtitles: divided at the breaks, in about as many lines as the source had."""
    parts = rendered.split(BREAK)
    if len(parts) < len(lines) or not all(_TAG.sub("", part).strip() for part in parts):
        whole = " ".join(rendered.replace(BREAK, " ").split())
        parts = _in_proportion(whole, [len(" ".join(cue)) for cue in lines], wide)
    written = [_in_lines(_with_edges(part, cue), cue, wide, line_end) for part, cue in zip(parts, lines)]
    return "".join([written[0], *(gap + part for gap, part in zip(between, written[1:], strict=True))])


def _with_edges(part: str, lines: Sequence[str]) -> str:
    """A part without the spaces at the break, unless the subtitle has them."""
    part = part if lines[0][:1].isspace() else part.lstrip(" ")
    return part if lines[-1][-1:].isspace() else part.rstrip(" ")


def _in_lines(text: str, lines: Sequence[str], wide: bool, line_end: str) -> str:
    """The text with its own line breaks, if it has as many lines as the source and none is too long.
    Otherwise it is divided anew into lines of about the same length: at most as many as the source has, or
    two if that has one, and fewer if the text is short.
    """
    longest = max(_WIDE_LINE if wide else _LINE, *(len(_TAG.sub("", line)) for line in lines))
    given_lines = text.split("\n")
    if len(given_lines) == len(lines) and all(len(_TAG.sub("", line)) <= longest for line in given_lines):
        return text
    plain = re.sub(r"\s*[\r\n]+\s*", " ", text)
    length = len(_TAG.sub("", plain))
    count = max(1, min(max(len(lines), 2), -(-length // (_WIDE_LINE if wide else _LINE))))
    return line_end.join(_in_proportion(plain, [1] * count, wide))


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


_VTT_TIME = r"(?:(?P<h{0}>\d{{2,}}):)?(?P<m{0}>\d\d):(?P<s{0}>\d\d)\.(?P<ms{0}>\d\d\d)"
_VTT_HEAD = re.compile(
    rf"(?P<name>(?![^\r\n]*-->)[^\r\n]*\r?\n)?[ \t]*{_VTT_TIME.format(1)}[ \t]+-->[ \t]+{_VTT_TIME.format(2)}"
    r"[^\r\n]*(?:\r?\n|\Z)"
)
_BLOCK = re.compile(r"(?:[^\r\n]+(?:\r?\n|\Z))+")


def parse_vtt(text: str, target_lang: str, name: str = "the subtitles") -> list[Piece]:
    """The subtitles in pieces, whose concatenation is the file. InputError if it is not WebVTT."""
    if not re.match(r"WEBVTT(?:[ \t\r\n]|\Z)", text.removeprefix(BYTE_ORDER_MARK)):
        raise InputError(f"{name}: must be subtitles that begin with WEBVTT, but do not")
    cues: list[Cue] = []
    gaps: list[list[str]] = [[]]
    for block in _blocks(text.replace(BREAK, ""), name):
        if isinstance(block, Cue):
            cues.append(block)
            gaps.append([block.gap])
        else:
            gaps[-1].append(block)
    before, *after = map("".join, gaps)
    cues = [replace(cue, gap=gap) for cue, gap in zip(cues, after)]
    return pieces_of_cues(before, cues, target_lang, Spelling)


def _blocks(text: str, name: str) -> Iterator[str | Cue]:
    """The head of the file, and its cues and what else stands between blank lines."""
    first = _BLOCK.search(text)
    assert first, "the file begins with WEBVTT"
    yield text[: first.end()]
    position = first.end()
    for block in _BLOCK.finditer(text, position):
        yield text[position : block.start()]
        position = block.end()
        head = _VTT_HEAD.match(block[0])
        if head is None:
            if "-->" in block[0] and not block[0].startswith(("NOTE", "STYLE", "REGION")):
                line = text.count("\n", 0, block.start()) + 1
                raise InputError(
                    f"{name}: must have times such as 00:01.000 --> 00:02.000 in line {line}, but has others"
                )
            yield block[0]
            continue
        content = block[0][head.end() :]
        stripped = content.rstrip("\r\n")
        gap = content[len(stripped) :]
        yield Cue(head[0], stripped, gap, seconds_of(head, 1), seconds_of(head, 2))
    yield text[position:]
