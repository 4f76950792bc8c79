"""Text in Office Open XML: paragraphs of Word and PowerPoint, strings of Excel.

A paragraph is a sequence of runs, each with its formatting. The formatting that most characters have is the
formatting of the text; runs in other formatting, links and the like become marks in it. Consecutive runs in
the same formatting become one: Word splits runs where it has checked the spelling.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, islice, takewhile
from typing import ClassVar

from transformer_mt.companions.documents.markup.inline_run import pieces_of_run, plain_text
from transformer_mt.companions.documents.markup.marked_text import (
    FIELD,
    MarkedText,
    Piece,
    Stays,
    XmlSpelling,
)
from transformer_mt.companions.documents.markup.tokens import Token, end_of, xml_tokens
from transformer_mt.errors import InputError
from transformer_mt.text.sentences import has_words

_PARAGRAPHS, _STRINGS = {"w:p", "a:p"}, {"si", "is"}
_PLAIN = {"c:v", "cx:v", "cx:pt", "x:text", "p:text", "text"}
"""Names and values of charts, and comments."""
_OF_PAGES = {f"{pages}{place}" for pages in ("odd", "even", "first") for place in ("Header", "Footer")}
"""The headers and footers of the pages of a sheet."""
_SECTION = re.compile("(&amp;[LCR])")
_CODE = re.compile(r'(&amp;(?:"[^"]*"|&quot;.*?&quot;|\d+|K[0-9A-F]{6}|[A-Z]|&amp;))')
"""Codes in headers and footers: the left, centre and right section, and others such as the page number."""
_PICTURES = {"docPr", "cNvPr", "tblCaption", "tblDescription"}
"""Elements whose attributes have texts that are read in the place of a picture or a table."""
_SHEET = re.compile(r"<(?:\w+:)?worksheet[\s>]")
_HAS_TEXT = re.compile(r"<(?:\w+:)?(?:p|si|is|(?:odd|even|first)(?:Header|Footer))[\s>]")
_AROUND = {
    "w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:sdt", "w:sdtContent", "w:fldSimple", "w:customXml",
    "w:dir", "w:bdo",
}  # fmt: skip
"""Elements around runs."""
_STAY = {
    "w:del": "texts that a tracked change takes out",
    "w:moveFrom": "texts that a tracked change takes out",
    "w:sdt": "content controls that Word fills from other data",
}
"""Elements whose text stays; a content control only if it is bound to data."""
_TEXTS = {"w:t", "a:t"}
_FORMATTING = {"rPr"}
_TABS = {"w:tab", "w:ptab"}
_GAPS = {"br", "cr", "tab", "ptab"}
"""Elements that keep words apart."""
_OUTER_SPACE = re.compile(r"<((?:[wx]:)?t)>(?=\s|[^<]*\s</)")
"""Matches the start tag of a text that begins or ends with a space, which Word and Excel would drop."""
_TAG_OF_RUN = re.compile(r"(<(?:\w+:)?[rt])((?:\s[^<>]*)?>)")
_WITHOUT_REFERENCES = re.compile(
    r"(_x000[9aAdD]_|</w:t><w:noBreakHyphen\s*(?:/>|></w:noBreakHyphen>)<w:t(?:\s[^>]*)?>)"
)


class _RunSpelling(XmlSpelling):
    """The spelling of XML, in which Excel writes some line breaks and tabs as codes such as `_x000A_`, and
    Word writes non-breaking hyphens as elements.
    """

    special: ClassVar = "&_<"

    def units(self, raw: str) -> Iterator[tuple[str, str]]:
        return self._units(raw) if _WITHOUT_REFERENCES.search(raw) else super().units(raw)

    def _units(self, raw: str) -> Iterator[tuple[str, str]]:
        for i, part in enumerate(_WITHOUT_REFERENCES.split(raw)):
            yield from [("‑" if "<" in part else "\n", part)] if i % 2 else super().units(part)


def parse_ooxml(text: str, name: str) -> list[Piece]:
    """The pieces of a part of a document."""
    if _SHEET.search(text, 0, 1000) and not _HAS_TEXT.search(text):  # a sheet without text
        return [text]
    try:
        return list(_pieces(xml_tokens(text, name)))
    except RecursionError:
        raise InputError(f"{name}: must have fewer nested elements with text") from None


def _local(token: Token) -> str:
    return token.name.rpartition(":")[2]


def _raw(tokens: Sequence[Token]) -> str:
    return "".join(token.raw for token in tokens)


def _pieces(tokens: Sequence[Token]) -> Iterator[Piece]:
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token.kind == "start" and token.name in _STAY and _stays(tokens, position):
            begin, position = position, end_of(tokens, position) + 1
            yield Stays(_raw(tokens[begin:position]), _STAY[token.name])
            continue
        if token.kind == "text" and position and tokens[position - 1].name in _TEXTS and has_words(token.raw):
            yield Stays(token.raw, FIELD)
            position += 1
            continue
        yield from _with_alternative(token) if _local(token) in _PICTURES else [token.raw]
        position += 1
        if token.kind == "start":
            is_paragraph = token.name in _PARAGRAPHS or _local(token) in _STRINGS
            if is_paragraph or token.name in _PLAIN or _local(token) in _OF_PAGES:
                end = end_of(tokens, position - 1)
                yield from (
                    _between_tabs(tokens[position:end])
                    if is_paragraph
                    else _plain(tokens[position:end], _local(token) in _OF_PAGES)
                )
                position = end


def _stays(tokens: Sequence[Token], begin: int) -> bool:
    """True if the text of this element, whose name is in _STAY, is not translated."""
    properties = takewhile(lambda token: token.name != "w:sdtContent", islice(tokens, begin, None))
    return tokens[begin].name != "w:sdt" or any(_local(token) == "dataBinding" for token in properties)


def _plain(tokens: Sequence[Token], is_of_pages: bool) -> list[Piece]:
    """The content of an element that has text without runs."""
    if any(token.kind == "start" for token in tokens):
        return list(_between_tabs(tokens))  # a comment in a workbook, with runs
    pieces: list[Piece] = []
    for number, part in enumerate(_SECTION.split(_raw(tokens)) if is_of_pages else [_raw(tokens)]):
        codes = _CODE.split(part) if is_of_pages and not number % 2 else [part]
        run = [Token("object" if i % 2 else "text", code) for i, code in enumerate(codes) if code]
        pieces += [part] if number % 2 else pieces_of_run(run, lambda token: [token.raw], XmlSpelling())
    return pieces


def _with_alternative(token: Token) -> Iterator[Piece]:
    """The properties of a picture or a table, with the texts that are read in its place."""
    start = 0
    for name, value, begin, end in token.attributes():
        name = name.rpartition(":")[2]
        if name in ("descr", "title", "val") and has_words(XmlSpelling().decoded(value)):
            quote = token.raw[begin]
            text = plain_text(value, XmlSpelling(quote))
            yield token.raw[start:begin]
            yield replace(text, before=quote + text.before, after=text.after + quote)
            start = end
    yield token.raw[start:]


@dataclass(frozen=True)
class _Run:
    """Text in one formatting."""

    opening: str
    """The markup before its characters: `<w:r><w:rPr>...</w:rPr><w:t>`."""
    formatting: str
    text: str
    closing: str


class _Paragraph:
    """A text of a paragraph: runs, and what stands between them."""

    def __init__(self, parts: Sequence["_Run | _Other"]) -> None:
        self._parts = parts
        runs = [run for part in self._parts for run in ([part] if isinstance(part, _Run) else part.runs)]
        sizes: dict[str, int] = {}
        for run in (part for part in self._parts if isinstance(part, _Run)):
            sizes[run.formatting] = sizes.get(run.formatting, 0) + len(run.text)
        usual = max(sizes, key=sizes.__getitem__, default=None)
        self._following: list[_Run | None] = [None]
        """For each part, the next run in the formatting of most characters; it may be the part itself."""
        for part in reversed(self._parts):
            is_usual = isinstance(part, _Run) and part.formatting == usual
            self._following.append(part if is_usual else self._following[-1])  # type: ignore[arg-type]
        self._following.reverse()
        self._base = self._following[0] or next(iter(runs), None)
        self._text = _RunSpelling().decoded(" ".join(run.text for run in runs))
        self._others: dict[int, tuple[str, _Other, str]] = {}
        self._texts_of_others: list[MarkedText] = []

    def pieces(self) -> Iterator[Piece]:
        """The text with what stands around it; as it is written if it has no words."""
        base = self._base
        as_written = (piece for part in self._parts for piece in _as_written(part))
        if base is None or not has_words(self._text):
            yield from as_written
            return
        opening = self._reopened(base, -1)
        tokens = [token for number in range(len(self._parts)) for token in self._tokens(base, number)]
        pieces = pieces_of_run(tokens, self._write, _RunSpelling())
        texts = (i for i, piece in enumerate(pieces) if isinstance(piece, MarkedText))
        places = (i for i in texts if not any(pieces[i] is other for other in self._texts_of_others))
        if (main := next(places, None)) is None:  # the joined runs have no words: an address, say
            yield from as_written
            return
        text = pieces[main]
        assert isinstance(text, MarkedText)
        *first, before = self._merged([opening, *pieces[:main], ""])
        after, *last = self._merged(["", *pieces[main + 1 :], base.closing])
        yield from first
        yield replace(text, finish=lambda body: self._clean(f"{before}{body}{after}"))
        yield from last
        yield from (Stays("", piece.what) for piece in pieces if isinstance(piece, Stays))

    def _reopened(self, base: _Run, number: int) -> str:
        """The beginning of the next run in the usual formatting after this part."""
        following = self._following[number + 1]
        return (base if following is None else following).opening

    def _tokens(self, base: _Run, number: int) -> list[Token]:
        """The tokens of one part. A part that is not in the usual formatting is enclosed in markup that
        closes the run before it and opens the next one.
        """
        part = self._parts[number]
        if isinstance(part, _Run):
            if part.formatting == base.formatting and self._following[0]:
                return [Token("text", part.text)]
            return _around(
                base.closing + part.opening, part.text, part.closing + self._reopened(base, number)
            )
        if part.runs:
            run = max(part.runs, key=lambda run: len(run.text))
            opening = base.closing + part.before + run.opening
            text = "".join(run.text for run in part.runs)
            return _around(opening, text, run.closing + part.after + self._reopened(base, number))
        around = base.closing, part, self._reopened(base, number)
        is_gap = any(_local(inner) in _GAPS for inner in part.tokens)
        token = Token("object", around[0] + _raw(part.tokens) + around[2], "br" if is_gap else "")
        self._others[id(token)] = around
        return [token]

    def _write(self, token: Token) -> list[Piece]:
        if id(token) not in self._others:
            return [token.raw]
        before, part, after = self._others[id(token)]
        inside = part.written
        self._texts_of_others += [piece for piece in inside if isinstance(piece, MarkedText)]
        return [before, *inside, after]

    def _merged(self, pieces: Sequence[Piece]) -> list[Piece]:
        """The pieces, with the markup between two texts joined into one piece, and without empty runs."""
        merged: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, str) and merged and isinstance(merged[-1], str):
                merged[-1] += piece
            else:
                merged.append("" + piece if isinstance(piece, str) else piece)
        return [self._clean(piece) if isinstance(piece, str) else piece for piece in merged]

    @cached_property
    def _empty_run(self) -> re.Pattern[str]:
        """Matches empty runs in the formatting of the text, whatever attributes they have: these are only
        revision numbers.
        """
        assert self._base, "there is a text"
        parts = _TAG_OF_RUN.split(self._base.opening)
        parts[::3] = map(re.escape, parts[::3])
        parts[2::3] = [r"(?:\s[^<>]*)?>"] * len(parts[2::3])
        return re.compile("".join(parts) + re.escape(self._base.closing))

    def _clean(self, written: str) -> str:
        written = self._empty_run.sub("", written)
        return _OUTER_SPACE.sub(r'<\1 xml:space="preserve">', written)


def _around(opening: str, text: str, closing: str) -> list[Token]:
    return [Token("start", opening, "r"), Token("text", text), Token("end", closing, "r")]


@dataclass(frozen=True)
class _Other:
    """A part that is no run of text: a picture, a tab, a link around runs."""

    tokens: Sequence[Token]
    runs: Sequence[_Run] = ()
    """The runs of text within it, if there is nothing else."""
    before: str = ""
    after: str = ""
    is_text: bool = False
    """An element with a text of its own."""

    @property
    def is_tab(self) -> bool:
        """True for a tab. In paragraph properties such elements define tab positions, and do not count."""
        names = {token.name for token in self.tokens}
        return not (self.runs or self.is_text) and bool(names & _TABS) and not names & {"w:pPr", "w:p"}

    @cached_property
    def written(self) -> list[Piece]:
        """The part as it is written, with the texts in it, such as those of text boxes. Cached: a part may be
        needed twice, and parts are nested.
        """
        if not self.is_text:
            return list(_pieces(self.tokens))
        return [self.tokens[0].raw, *_between_tabs(self.tokens[1:-1]), self.tokens[-1].raw]


def _between_tabs(tokens: Sequence[Token]) -> Iterator[Piece]:
    """The texts of a paragraph, which is split at its tabs: they stand between columns, and before the page
    number in a table of contents.
    """
    parts: list[_Run | _Other] = []
    for part in _with_fields(_parts(tokens)):
        if isinstance(part, _Other) and part.is_tab:
            yield from _Paragraph(parts).pieces()
            yield from part.written
            parts = []
        else:
            parts.append(part)
    yield from _Paragraph(parts).pieces()


def _as_written(part: "_Run | _Other") -> list[Piece]:
    if isinstance(part, _Run):
        return [part.opening + part.text + part.closing]
    return part.written


def _parts(tokens: Sequence[Token]) -> Iterator["_Run | _Other"]:
    """The elements of a paragraph."""
    position = 0
    while position < len(tokens):
        token = tokens[position]
        end = end_of(tokens, position) + 1 if token.kind == "start" else position + 1
        inside = tokens[position:end]
        if token.kind == "start" and _local(token) == "r":
            yield from _of_run(inside)
        elif token.kind == "start" and _local(token) == "t":  # a plain string of a table
            yield _Run(token.raw, "", _raw(inside[1:-1]), inside[-1].raw)
        elif token.kind == "start" and token.name in _AROUND:
            yield _of_wrapper(inside)
        else:
            yield _Other(inside)
        position = end


def _of_run(tokens: Sequence[Token]) -> Iterator["_Run | _Other"]:
    """The parts of a run, which is divided if it has both text and other elements, such as line breaks."""
    opening, position = tokens[0].raw, 1
    formatting = ""
    if len(tokens) > 1 and tokens[1].kind in ("start", "object") and _local(tokens[1]) in _FORMATTING:
        end = end_of(tokens, 1) + 1 if tokens[1].kind == "start" else 2
        formatting, position = _raw(tokens[1:end]), end
    content = tokens[position:-1]
    begin, closing = opening + formatting, tokens[-1].raw
    elements = _with_hyphens(list(_elements(content)))
    is_text = [element[0].kind == "start" and _local(element[0]) == "t" for element in elements]
    if not any(is_text):
        yield _with_base(tokens)
        return
    for element, has_text in zip(elements, is_text):
        if has_text:
            yield _Run(begin + element[0].raw, formatting, _raw(element[1:-1]), element[-1].raw + closing)
        else:
            outer = Token("object", begin), *element, Token("object", closing)
            yield _Other(outer)


def _with_base(tokens: Sequence[Token]) -> _Other:
    """A run without text of its own. If it has words with readings (ruby), the words are its text."""
    begin = next((i for i, token in enumerate(tokens) if token.name == "w:rubyBase"), 0)
    parts = list(_parts(tokens[begin + 1 : end_of(tokens, begin)])) if begin else []
    runs = [part for part in parts if isinstance(part, _Run)]
    if not runs or len(runs) < len(parts):
        return _Other(tokens)
    return _Other(tokens, runs, _raw(tokens[: begin + 1]), _raw(tokens[end_of(tokens, begin) :]))


def _with_hyphens(elements: Sequence[Sequence[Token]]) -> list[list[Token]]:
    """The elements of a run; two texts that are joined by a non-breaking hyphen become one."""
    runs: list[list[Token]] = []
    for element in elements:
        is_joined = len(runs) > 1 and runs[-1][0].name == "w:noBreakHyphen"
        if is_joined and element[0].name == runs[-2][0].name == "w:t" and len(runs[-2]) > 1 < len(element):
            hyphen = runs.pop()
            runs[-1] += [*hyphen, *element]
        else:
            runs.append(list(element))
    return runs


def _elements(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    position = 0
    while position < len(tokens):
        end = end_of(tokens, position) + 1 if tokens[position].kind == "start" else position + 1
        yield tokens[position:end]
        position = end


def _of_wrapper(tokens: Sequence[Token]) -> _Other:
    """An element around runs, such as a link. If there is nothing else between the runs, they are part of the
    paragraph's text; otherwise the element has a text of its own.
    """
    starts = [i for i, t in enumerate(tokens) if t.kind == "start" and t.name == "w:r"]
    if not starts or (tokens[0].name in _STAY and _stays(tokens, 0)):
        return _Other(tokens)
    first, last = starts[0], end_of(tokens, starts[-1])
    parts = list(_parts(tokens[first : last + 1])) if _is_whole(tokens[first : last + 1]) else []
    runs = [part for part in parts if isinstance(part, _Run)]
    if not parts or len(runs) < len(parts):
        return _Other(tokens, is_text=True)
    is_box = any(token.name == "w14:checkbox" for token in tokens)
    if is_box or not any(run.text for run in runs):
        return _Other(tokens)
    return _Other(tokens, runs, _raw(tokens[:first]), _raw(tokens[last + 1 :]))


def _is_whole(tokens: Sequence[Token]) -> bool:
    """True if no element only begins, or only ends, within the tokens."""
    depths = list(accumulate({"start": 1, "end": -1}.get(token.kind, 0) for token in tokens))
    return min(depths) >= 0 and depths[-1] == 0


def _with_fields(parts: Iterator["_Run | _Other"]) -> Iterator["_Run | _Other"]:
    """The parts, with each field (a reference, a page number) joined into one: its beginning, code and end
    belong together. A field that ends in another paragraph is left as it is.
    """
    waiting: list[_Run | _Other] = []
    depth = 0
    for part in parts:
        kind = _field_kind(part)
        depth += {"begin": 1, "end": -1}.get(kind, 0)
        if depth < 0:  # it began in another paragraph
            depth = 0
            yield part
        elif depth or (waiting and kind == "end"):
            waiting.append(part)
            if not depth:
                yield _field(waiting)
                waiting = []
        else:
            yield part
    yield from waiting


def _field_kind(part: "_Run | _Other") -> str:
    if isinstance(part, _Run):
        return ""
    mark = next((token for token in part.tokens if token.name == "w:fldChar"), None)
    return (mark.attribute("fldchartype") or "") if mark else ""


def _field(parts: Sequence["_Run | _Other"]) -> _Other:
    """A field: its result is translated if it is text alone and has words."""
    tokens = [
        token
        for part in parts
        for token in (
            part.tokens
            if isinstance(part, _Other)
            else (
                Token("object", part.opening, "w:t"),
                Token("text", part.text),
                Token("object", part.closing),
            )
        )
    ]
    runs = [i for i, part in enumerate(parts) if isinstance(part, _Run)]
    is_one = bool(runs) and runs == list(range(runs[0], runs[-1] + 1))
    texts = [part for part in parts if isinstance(part, _Run)]
    if not is_one or not any(any(map(str.isalpha, run.text)) for run in texts):
        return _Other(tokens)
    before, after = (
        "".join(_raw(part.tokens) for part in section if isinstance(part, _Other))
        for section in (parts[: runs[0]], parts[runs[-1] + 1 :])
    )
    return _Other(tokens, texts, before, after)
