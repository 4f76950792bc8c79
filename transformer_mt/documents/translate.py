"""The texts of a document translated, with their markup."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from transformer_mt.documents.html import parse_html
from transformer_mt.documents.marked_text import MarkedText, Piece
from transformer_mt.documents.placement import place
from transformer_mt.documents.subtitles import parse_srt
from transformer_mt.errors import InputError
from transformer_mt.text.unsegmented import LETTER
from transformer_mt.translation.chunk_size import ChunkSize
from transformer_mt.translation.flags import URL
from transformer_mt.translation.result import Candidate, Options
from transformer_mt.translation.translator import Translator

_FLAGS = re.compile(r"^\(\?([aiLmsux]+)\)")


@dataclass(frozen=True)
class Part:
    """A part of a translated document: a text, with what stands before it in the document."""

    written: str
    problems: list[str] = field(default_factory=list)
    """Sentences about the text's translation."""


def parse(text: str, format: str, target_lang: str, name: str) -> list[Piece]:
    """A document in pieces: markup, and texts to translate. InputError if it is not of this format."""
    if format == "srt":
        return parse_srt(text, target_lang, name)
    if format == "html":
        return parse_html(text, name)
    raise InputError(f"the format must be html or srt, but is {format}")


def translate_pieces(
    translator: Translator,
    pieces: Sequence[Piece],
    tag: str | None = None,
    protect: str | None = None,
    done: int = 0,
) -> Iterator[Part]:
    """The parts of the translated document in order, one for each of its texts, and what stands after them.
    The first `done` are left out.
    """
    texts = [piece for piece in pieces if isinstance(piece, MarkedText)]
    markup = _markup_before(pieces)
    size, start = ChunkSize(), done
    while start < len(texts):
        chunk = texts[start : start + size.next()]
        options = Options(align=True, tag=tag, protect=[pattern_of(text, protect) for text in chunk])
        results = translator.stream([text.text for text in chunk], options)
        for i, (text, result) in enumerate(zip(chunk, results), start=start):
            written, unplaced = write(text, result.n_best[0])
            yield Part(markup[i] + written, [*result.problems, *unplaced])
        start += len(chunk)
    if done <= len(texts):
        yield Part(markup[-1])


def write(text: MarkedText, candidate: Candidate) -> tuple[str, list[str]]:
    """A translation with the markup of its text, and a sentence for each mark that could not be placed."""
    placed = place(text, candidate)
    problems = [
        f"{mark.opening or mark.verbatim} is not around the words it should be around: the alignment does not"
        " find them"
        for mark in placed.unplaced
    ]
    return placed.text.render(), problems


def pattern_of(text: MarkedText, protect: str | None = None) -> str:
    """What must stay in the translation: addresses, literal text, and what `protect` matches."""
    literals = sorted(set(text.literals()), key=lambda literal: (-len(literal), literal))
    patterns = []
    if literals:
        # A literal `a` is not that in the middle of a word. The large set of letters is compiled only once.
        letter, any_literal = LETTER.pattern, "|".join(map(re.escape, literals))
        patterns = [f"(?<!{letter})(?:{any_literal})(?!{letter})"]
    own = []
    if protect:  # flags may stand only at the beginning of a pattern, or apply to a group
        flags = _FLAGS.match(protect)
        own = [f"(?{flags[1]}:{protect[flags.end() :]})" if flags else f"(?:{protect})"]
    return "|".join([*patterns, URL.pattern, *own])


def _markup_before(pieces: Sequence[Piece]) -> list[str]:
    """The markup before each text, and that after the last one."""
    befores = [""]
    for piece in pieces:
        if isinstance(piece, str):
            befores[-1] += piece
        else:
            befores.append("")
    return befores
