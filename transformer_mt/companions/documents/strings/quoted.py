"""A string between quotes as pieces: what stands in it is translated, its escapes are written as before."""

import re
from collections.abc import Callable, Sequence

from transformer_mt.companions.documents.markup.html import parse_html
from transformer_mt.companions.documents.markup.html_tokens import Token
from transformer_mt.companions.documents.markup.inline_run import pieces_of_run
from transformer_mt.companions.documents.markup.marked_text import Piece, Stays
from transformer_mt.companions.documents.markup.spelling import BackslashSpelling, PlainSpelling, Spelling
from transformer_mt.companions.documents.strings.codes import CODES, is_code
from transformer_mt.companions.documents.strings.placeholders import with_placeholders

_CHOICE = re.compile(r"\{\s*[\w.]+\s*,\s*(?:plural|select|selectordinal|choice)\b")
_CDATA = re.compile(r"(\s*<!\[CDATA\[)(.*)(\]\]>\s*)", re.DOTALL)


CHOICES = "messages of ICU that choose between forms"
"""Their words are inside braces."""
FINISHED = "texts with finished translations"


def is_choice(raw: str) -> bool:
    """True if a message chooses between forms."""
    return _CHOICE.search(raw) is not None


def pieces_of_cdata(
    tokens: Sequence[Token], own_spelling: Callable[..., Spelling] | None = None
) -> list[Piece] | None:
    """The content of an element that is one section of CDATA, read as HTML; None for another content."""
    if [token.name for token in tokens if token.raw.strip()] != ["cdata"]:
        return None
    match = _CDATA.fullmatch("".join(token.raw for token in tokens))
    return [match[1], *parse_html(match[2], own_spelling=own_spelling), match[3]] if match else None


def pieces_of_string(raw: str, spelling: PlainSpelling | None = None) -> list[Piece]:
    """A string as it is written, without its quotes. A message that chooses between forms stays, and so does
    a value that is no language.
    """
    if is_choice(raw):
        return [Stays(raw, CHOICES)]
    if is_code(raw):
        return [Stays(raw, CODES)]
    spelling = BackslashSpelling() if spelling is None else spelling
    return pieces_of_run(list(with_placeholders([Token("text", raw)])), lambda token: [token.raw], spelling)
