"""A string between quotes as pieces: what stands in it is translated, its escapes are written as before."""

import re

from transformer_mt.documents.markup.html_tokens import Token
from transformer_mt.documents.markup.inline_run import pieces_of_run
from transformer_mt.documents.markup.marked_text import Piece
from transformer_mt.documents.markup.spelling import BackslashSpelling, PlainSpelling

# Messages of ICU that choose between forms: their words are inside braces.
CHOICE = re.compile(r"\{\s*[\w.]+\s*,\s*(?:plural|select|selectordinal|choice)\b")


def pieces_of_string(raw: str, spelling: PlainSpelling | None = None) -> list[Piece]:
    """A string as it is written, without its quotes. A message that chooses between forms stays."""
    if CHOICE.search(raw):
        return [raw]
    spelling = BackslashSpelling() if spelling is None else spelling
    return pieces_of_run([Token("text", raw)], lambda token: [token.raw], spelling)
