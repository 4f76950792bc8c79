"""Build a text with marks from a run: text and inline markup between two elements that end a sentence."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from transformer_mt.companions.documents.markup.marked_text import (
    BREAK,
    CLOSE,
    OPEN,
    Mark,
    MarkedText,
    Piece,
    PlainSpelling,
    Spelling,
    Stays,
)
from transformer_mt.companions.documents.markup.tokens import OBJECTS, VOID, VOID_OBJECTS, Token, go_on
from transformer_mt.text.languages import LETTER
from transformer_mt.text.sentences import has_words

# Objects that keep words apart. Formats without tags of HTML call their line breaks and tabs `br`.
_SHOWN = (VOID_OBJECTS | OBJECTS | {"br"}) - {"wbr", "script", "style", "template"}
_DEPTH = 50
"""Maximum depth of nested marks; the tags of deeper elements become marks at one position."""
_WORDS_AND_SPACES = re.compile(rf"\s+|[{OPEN}{CLOSE}]|[^\s{OPEN}{CLOSE}]+")
_NOTE = re.compile(r"[\W\d]*")
_MOST_TOKENS = 4000
"""After this many tokens, a text ends at the next place where no element is open."""
Write = Callable[[Token], list[Piece]]
"""A token as it is written, with the texts of its attributes."""


def pieces_of_run(run: Sequence[Token], write: Write, spelling: PlainSpelling) -> list[Piece]:
    """The run in pieces: one text, with markup around it. A run without words stays as it is. A run of many
    thousand tokens becomes several texts, because the time to place markup grows with the square of its size.
    """
    return [piece for part in _divided(run) for piece in _pieces_of_part(part, write, spelling)]


def _divided(run: Sequence[Token]) -> Iterator[Sequence[Token]]:
    begin, inside, partners = 0, 0, _partners(run) if len(run) > _MOST_TOKENS else {}
    for i in range(len(run)):
        inside += (partners[i] > i) - (partners[i] < i) if i in partners else 0
        if i + 1 - begin >= _MOST_TOKENS and not inside:
            yield run[begin : i + 1]
            begin = i + 1
    yield run[begin:]


def _pieces_of_part(run: Sequence[Token], write: Write, spelling: PlainSpelling) -> list[Piece]:
    go_on()
    partners = _partners(run)
    read = [_read(token, spelling) for token in run]
    visible = [i for i, text in enumerate(read) if text]
    spoken = " ".join(text for text, token in zip(read, run) if token.kind == "text")
    if not visible or not has_words(spoken):
        return [piece for token in run for piece in write(token)]
    first, last = _core(visible[0], visible[-1], partners)
    before, run_text, after = list(run[:first]), list(run[first : last + 1]), list(run[last + 1 :])
    leading, trailing = "", ""
    if run_text[0].kind == "text":
        leading, run_text[0] = _without_edge(run_text[0], spelling, at_end=False)
    if run_text[-1].kind == "text":
        trailing, run_text[-1] = _without_edge(run_text[-1], spelling, at_end=True)
    builder = _Builder(write, spelling)
    builder.add_all(run_text, _partners(run_text))
    pieces: list[Piece] = [piece for token in before for piece in write(token)]
    pieces += [leading, builder.text_with_marks(), trailing, *builder.stays()]
    return pieces + [piece for token in after for piece in write(token)]


def plain_text(raw: str, spelling: Spelling) -> MarkedText:
    """A text without markup, such as the value of an attribute."""
    builder = _Builder(lambda token: [token.raw], spelling)
    leading, token = _without_edge(Token("text", raw), spelling, at_end=False)
    trailing, token = _without_edge(token, spelling, at_end=True)
    builder.add_all([token], {})
    return replace(builder.text_with_marks(), before=leading, after=trailing)


def _partners(run: Sequence[Token]) -> dict[int, int]:
    """Map the position of each start tag to the position of its end tag, and back. Elements that overlap or
    are nested too deep are left out.
    """
    partners: dict[int, int] = {}
    opened: list[int] = []
    names: dict[str, int] = {}  # of those that are open
    for i, token in enumerate(run):
        if token.kind == "start" and token.name not in VOID:
            opened.append(i)
            names[token.name] = names.get(token.name, 0) + 1
        elif token.kind == "end" and names.get(token.name):
            while run[opened[-1]].name != token.name:
                names[run[opened.pop()].name] -= 1
            names[token.name] -= 1
            begin = opened.pop()
            if len(opened) < _DEPTH:
                partners[i], partners[begin] = begin, i
    return partners


def _read(token: Token, spelling: PlainSpelling) -> str:
    """The characters of a token that are seen; empty for white space and markup."""
    if token.kind == "text":
        text = spelling.decoded(token.raw)
        return "" if text.isspace() else text
    return spelling.decoded(token.raw) if token.kind == "literal" else ""


def _core(first: int, last: int, partners: dict[int, int]) -> tuple[int, int]:
    """Range of tokens that holds all text, and the tags around parts of it. Tags around the whole text are
    not in the range.
    """
    while True:
        inside = range(first, last + 1)
        begin = min([first, *(i for i, other in partners.items() if i < first and other in inside)])
        end = max([last, *(i for i, other in partners.items() if i > last and other in inside)])
        if (begin, end) == (first, last):
            return first, last
        first, last = begin, end


def _without_edge(token: Token, spelling: PlainSpelling, at_end: bool) -> tuple[str, Token]:
    """Split a text token into the white space at one edge, as it is written, and the rest."""
    parts = list(spelling.units(token.raw))
    edge: list[str] = []
    while parts and parts[-1 if at_end else 0][0].isspace():
        edge.append(parts.pop(-1 if at_end else 0)[1])
    rest = "".join(raw for _, raw in parts)
    return "".join(reversed(edge) if at_end else edge), token._replace(raw=rest)


@dataclass
class _Frame:
    """An element that is open: what it was opened with, and what was found in it."""

    opening: str
    begin: int
    first: int
    """The position of its tag in the run."""
    marks: list[Mark] = field(default_factory=list)


class _Builder:
    """Collects the text of a run on one line, and its markup as marks."""

    def __init__(self, write: Write, spelling: PlainSpelling) -> None:
        self._write, self._spelling = write, spelling
        self._characters: list[str] = []
        self._inner: list[MarkedText] = []
        self._stays: dict[tuple[int, int], Stays] = {}
        """Parts of tokens that stay."""
        self._frames = [_Frame("", 0, 0)]
        self._needs_gap = False
        """True after a literal: a word that follows directly must be separated from it."""

    def text_with_marks(self) -> MarkedText:
        """The collected text, with its marks."""
        marks = tuple(self._frames[0].marks)
        text = "".join(self._characters)
        return MarkedText(text, marks, writer=self._spelling.writer, inner=tuple(self._inner))

    def stays(self) -> list[Stays]:
        """An empty piece for each part of the markup whose text is not translated."""
        return [Stays("", part.what) for part in self._stays.values()]

    def add_all(self, run: Sequence[Token], partners: dict[int, int]) -> None:
        read = [_read(token, self._spelling) for token in run]
        last = max(i for i, text in enumerate(read) if text)
        after = accumulate(reversed(read), lambda later, text: text[:1] or later, initial="")
        following = list(after)[-2::-1]
        """The first character that is seen after each token."""
        for i, token in enumerate(run):
            if token.kind == "text":
                self._add_text(token.raw, is_last=i >= last)
            elif token.kind == "literal":
                self._add_literal(token)
            elif i not in partners:
                self._add_object(token, following[i])
            elif token.kind == "start":
                self._frames.append(_Frame(self._markup(token), self._end, i))
            else:
                self._close(self._frames.pop(), run, i)

    @property
    def _end(self) -> int:
        """The number of characters so far."""
        return len(self._characters)

    @property
    def _last(self) -> str:
        """The last character so far."""
        return self._characters[-1] if self._characters else ""

    @property
    def _marks(self) -> list[Mark]:
        return self._frames[-1].marks

    def _markup(self, token: Token) -> str:
        """The source of a token; each translatable attribute is replaced by its index in `_inner`."""
        parts = []
        for i, piece in enumerate(self._write(token)):
            if isinstance(piece, Stays):
                self._stays[id(token), i] = piece
            if isinstance(piece, str):
                parts.append(piece)
            else:
                parts.append(f"{OPEN}{len(self._inner)}{CLOSE}")
                self._inner.append(piece)
        return "".join(parts)

    def _add_text(self, raw: str, is_last: bool) -> None:
        space = ""
        is_plain = self._spelling.is_plain(raw)
        parts = ((part, part) for part in _WORDS_AND_SPACES.findall(raw))
        for characters, written in parts if is_plain else self._spelling.units(raw):
            if characters.isspace():
                space += written
                continue
            self._add_space(space)
            space = ""
            if characters in ("", OPEN, CLOSE):  # references to what is no character
                self._marks.append(Mark(self._end, self._end, written))
                continue
            if self._needs_gap and LETTER.fullmatch(characters[0]) and self._last != " ":
                self._add_gap()
            self._needs_gap = False
            self._characters += characters
            if not is_plain:
                self._spelling.add(characters, written)
            elif not characters.isalnum():
                for character in characters:
                    self._spelling.add(character, character)
        self._add_space(space, at_end=is_last)

    def _add_space(self, written: str, at_end: bool = False) -> None:
        """Add white space of any kind and length as one space. It becomes markup at the beginning, after
        another space, and after the last word.
        """
        end = self._end
        if not written:
            return
        if at_end or self._last in ("", " "):
            self._marks.append(Mark(end, end, written))
            return
        self._characters.append(" ")
        if written != " ":
            self._marks.append(Mark(end, end + 1, "", space=written))

    def _add_gap(self) -> None:
        """A space that is not in the document: without it a word and code would become one word."""
        self._characters.append(" ")
        self._marks.append(Mark(self._end - 1, self._end, "", space=""))

    def _add_object(self, token: Token, following: str) -> None:
        """A token without text; `following` is the next character."""
        if token.raw == BREAK and self._last != " ":
            self._characters.append(" ")  # written, too: in the translation the break may be elsewhere
        if token.name in _SHOWN and LETTER.fullmatch(self._last) and LETTER.fullmatch(following):
            self._add_gap()
        self._marks.append(Mark(self._end, self._end, self._markup(token)))

    def _add_literal(self, token: Token) -> None:
        """Add text that stays. Spaces separate it from words around it, so that the translation keeps it."""
        inside = "".join(self._spelling.decoded(part.raw) for part in token.parts if part.kind == "text")
        content = " ".join(inside.split())
        is_word = LETTER.fullmatch(self._last) or (self._needs_gap and LETTER.fullmatch(content[0]))
        if self._last not in ("", " ") and (is_word or inside[0].isspace()):
            self._add_gap()
        begin = self._end
        self._characters += content
        self._marks.append(Mark(begin, self._end, "", verbatim=token.raw))
        self._needs_gap = True

    def _close(self, frame: _Frame, run: Sequence[Token], end: int) -> None:
        """Add an element as a mark, at one position if it has no text or has the number of a note."""
        inside = "".join(self._characters[frame.begin :])
        token = run[end]
        is_note = token.name == "sup" and _NOTE.fullmatch(inside) is not None
        if inside.strip() and not is_note:
            holds = inside.startswith(" "), inside.endswith(" ")
            closing = self._markup(token)
            self._marks.append(
                Mark(frame.begin, self._end, frame.opening, closing, tuple(frame.marks), holds=holds)
            )
            return
        written = "".join(self._markup(part) for part in run[frame.first : end + 1])
        if inside == " ":  # the only space between two words
            self._marks.append(Mark(frame.begin, frame.begin + 1, "", space=written))
            return
        del self._characters[frame.begin :]
        self._marks.append(Mark(frame.begin, frame.begin, written))
