"""Subtitles in WebVTT format (.vtt): times, settings, names, notes, styles and tags stay."""

import re
from collections.abc import Iterator
from dataclasses import replace

from transformer_mt.companions.documents.markup.marked_text import BREAK, BYTE_ORDER_MARK, Piece, Spelling
from transformer_mt.companions.documents.subtitles.srt import Cue, pieces_of_cues, seconds_of
from transformer_mt.errors import InputError

_TIME = r"(?:(?P<h{0}>\d{{2,}}):)?(?P<m{0}>\d\d):(?P<s{0}>\d\d)\.(?P<ms{0}>\d\d\d)"
_HEAD = re.compile(
    rf"(?P<name>(?![^\r\n]*-->)[^\r\n]*\r?\n)?[ \t]*{_TIME.format(1)}[ \t]+-->[ \t]+{_TIME.format(2)}"
    r"[^\r\n]*(?:\r?\n|\Z)"
)
_BLOCK = re.compile(r"(?:[^\r\n]+(?:\r?\n|\Z))+")


def parse_vtt(text: str, target_lang: str, name: str = "the subtitles") -> list[Piece]:
    """The subtitles in pieces, whose concatenation is the file. InputError if it is none."""
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
        head = _HEAD.match(block[0])
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
