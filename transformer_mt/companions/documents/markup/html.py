"""HTML: what of it is text to translate; all else stays as it is written, byte for byte."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from transformer_mt.companions.documents.markup.inline_run import pieces_of_run, plain_text
from transformer_mt.companions.documents.markup.marked_text import (
    BYTE_ORDER_MARK,
    CLOSE,
    OPEN,
    READING,
    MarkedText,
    Piece,
    Spelling,
    Stays,
    XmlSpelling,
    decoded,
)
from transformer_mt.companions.documents.markup.tokens import (
    BLOCKS_THAT_STAY,
    CODE,
    CONTROLS,
    INLINE,
    OBJECTS,
    READINGS,
    VOID,
    VOID_OBJECTS,
    WITH_ATTRIBUTES,
    WITH_TEXTS,
    Token,
    ended_by,
    tokens_of,
)
from transformer_mt.text.languages import base_code
from transformer_mt.text.sentences import has_words

_TEXT_ATTRIBUTES = frozenset({
    "alt", "title", "placeholder", "aria-label", "aria-description", "aria-placeholder",
    "aria-roledescription", "aria-valuetext",
})  # fmt: skip
_LABELLED = frozenset({"option", "optgroup", "track"})
_BUTTONS = frozenset({"submit", "button", "reset"})
_DESCRIPTIONS = frozenset(
    {"description", "og:title", "og:description", "twitter:title", "twitter:description"}
)
_WITHOUT_TEXT = frozenset({"link", "style", "script", "base"})
_COUNTED = {"noscript": "texts for browsers without scripts", "textarea": "texts of fields"}
_DEEPEST = 200  # elements within one another that are known: browsers, too, have a limit


def parse_html(
    text: str,
    source_lang: str | None = None,
    attributes: bool = True,
    is_ascii: bool = False,
    is_xml: bool = False,
    own_spelling: Callable[..., Spelling] | None = None,
) -> list[Piece]:
    """Split a document or a fragment into pieces, whose concatenation is the document. With `is_xml`, or an
    XML declaration at its beginning, it is XHTML. `own_spelling` is that of a format around it.

    With `attributes` the texts of `alt`, `title`, `placeholder`, `aria-label` and of descriptions are
    translated, too, unless the page says that it is in another language than `source_lang`. With `is_ascii`
    translations are written in ASCII: the document is declared to be in an encoding that may lack characters.
    """
    mark = text[: text.startswith(BYTE_ORDER_MARK)]
    text = text[len(mark) :].replace(OPEN, "").replace(CLOSE, "")
    is_xml = is_xml or text.startswith("<?xml")
    tokens = list(tokens_of(text, is_xml))
    new_spelling = partial(own_spelling or (XmlSpelling if is_xml else Spelling), is_ascii=is_ascii)
    return [mark, *_Parser(tokens, attributes and _is_in(tokens, source_lang), new_spelling).pieces()]


def _is_in(tokens: Sequence[Token], language: str | None) -> bool:
    """True if a page is in the language, or does not say in which."""
    html = next((token for token in tokens if token.kind == "start" and token.name == "html"), None)
    declared = html.attribute("lang") if html else None
    return not declared or language is None or base_code(declared) == base_code(language)


class _Parser:
    """Finds the texts of a document; a run of text and inline markup is one."""

    def __init__(
        self, tokens: Sequence[Token], attributes: bool, new_spelling: Callable[..., Spelling]
    ) -> None:
        self._tokens, self._attributes, self._new_spelling = tokens, attributes, new_spelling
        self._pieces: list[Piece] = []
        self._run: list[Token] = []
        self._open: list[str] = []
        """Names of the open elements, without translated inline elements."""
        self._translated = [True]
        """Whether content is translated: for the document, then for each open element."""

    def pieces(self) -> list[Piece]:
        i = 0
        while i < len(self._tokens):
            token = self._tokens[i]
            if token.kind == "start":
                i = self._start(i)
                continue
            if token.kind == "end" and self._is_border(token.name):
                self._end_run()
                self._pieces.append(token.raw)
                self._end(token.name)
            else:
                self._run.append(token)
            i += 1
        self._end_run()
        return self._pieces

    def _is_border(self, name: str) -> bool:
        """True if an end tag ends a sentence. A stray end tag does not, unless browsers insert an element for
        it, as for `</p>` and `</br>`.
        """
        return name in self._open or name in ("p", "br", "html", "head", "body")

    def _start(self, i: int) -> int:
        """Take the element that begins at the token `i`, or its first tag; returns the next token's
        number.
        """
        token = self._tokens[i]
        if token.name in OBJECTS:
            stop = self._end_of_object(i)
            parts = tuple(self._tokens[i:stop])
            self._run.append(Token("object", "".join(part.raw for part in parts), token.name, parts))
            return stop
        if token.name in VOID_OBJECTS:
            self._run.append(token)
            return i + 1
        if token.name not in INLINE | CODE:
            self._end_run()
            stay = ended_by(token.name, self._open)
            del self._open[stay:], self._translated[stay + 1 :]
        is_translated = _is_translated(token, self._translated[-1])
        stays = not is_translated or token.name in CODE
        if token.name in INLINE | CODE:
            if stays != self._translated[-1]:  # as the text around it
                self._run.append(token)
                return i + 1
            if stays and (stop := self._end_of_inline(i)):
                parts = tuple(self._tokens[i:stop])
                inside = "".join(part.raw for part in parts if part.kind == "text")
                written = "".join(part.raw for part in parts)
                self._run.append(
                    Token("literal" if decoded(inside).strip() else "object", written, token.name, parts)
                )
                return stop
            self._end_run()
        self._pieces += self._written(token) if not stays else [token.raw]
        self._enter(token.name, not stays and token.name not in BLOCKS_THAT_STAY)
        return i + 1

    def _enter(self, name: str, is_translated: bool) -> None:
        if name not in VOID and len(self._open) < _DEEPEST:
            self._open.append(name)
            self._translated.append(is_translated)

    def _end(self, name: str) -> None:
        """An end tag: it ends the last open element of its name, and those within it."""
        for i in reversed(range(len(self._open))):
            if self._open[i] == name:
                del self._open[i:], self._translated[i + 1 :]
                return

    def _end_run(self) -> None:
        if not self._translated[-1]:
            what = next((_COUNTED[name] for name in self._open if name in _COUNTED), None)
            self._pieces += [
                Stays(token.raw, what) if what and has_words(decoded(token.raw)) else token.raw
                for token in self._run
            ]
            self._run = []
            return
        for part in _divided(self._run):
            self._pieces += pieces_of_run(part, self._written, self._new_spelling())
        self._run = []

    def _end_of_object(self, i: int) -> int:
        """The number of the token after an object; one that is not ended reaches to the end."""
        name, depth = self._tokens[i].name, 0
        for j in range(i, len(self._tokens)):
            following = self._tokens[j]
            if name in READINGS and j > i and _ends_reading(following):
                return j + (following.kind == "end" and following.name == name)
            if name in WITH_TEXTS and j > i and (following.kind, following.name) == ("start", name):
                return j  # the next one begins here: these elements are not nested
            is_whole = name in ("svg", "math") and self._tokens[j].raw.endswith("/>")
            if self._tokens[j].name == name and not is_whole:
                depth += {"start": 1, "end": -1}.get(self._tokens[j].kind, 0)
            if depth == 0:
                return j + 1
        return len(self._tokens)

    def _end_of_inline(self, i: int) -> int:
        """The number of the token after an inline element; 0 if another element begins or ends before."""
        opened: list[str] = []
        for j in range(i, len(self._tokens)):
            token = self._tokens[j]
            if token.kind == "start" and token.name in INLINE | CODE:
                opened.append(token.name)
            elif token.kind == "end" and token.name in opened:
                while opened.pop() != token.name:
                    pass
            elif token.kind in ("start", "end") and token.name not in VOID_OBJECTS:
                return 0
            if not opened:
                return j + 1
        return 0

    def _written(self, token: Token) -> list[Piece]:
        """A token as it is written, with the texts of its attributes."""
        if token.parts and token.name in WITH_TEXTS and len(token.parts) > 1:
            content = _Parser(token.parts[1:], self._attributes, self._new_spelling).pieces()
            return [*self._written(token.parts[0]), *content]
        if token.parts and token.name in READINGS | {"svg"}:
            inside = (part for tag, part in pairwise(token.parts) if tag.name not in _WITHOUT_TEXT)
            has_text = any(part.kind == "text" and has_words(decoded(part.raw)) for part in inside)
            what = READING if token.name in READINGS else "pictures with texts (SVG)"
            return [Stays(token.raw, what) if has_text else token.raw]
        if token.parts and token.name in WITH_ATTRIBUTES:
            return [
                Stays(part.raw, "texts in the place of media")
                if part.kind == "text" and has_words(decoded(part.raw))
                else piece
                for part in token.parts
                for piece in self._written(part)
            ]
        if token.kind != "start" or not self._attributes or token.name in _WITHOUT_TEXT:
            return [token.raw]
        pieces: list[Piece] = []
        start = 0
        for name, value, begin, end in token.attributes():
            if not (name in _TEXT_ATTRIBUTES or _is_shown(token, name)):
                continue
            text = self._attribute(value, token.raw[begin:end])
            if text is not None:
                pieces += [token.raw[start:begin], text]
                start = end
        return [*pieces, token.raw[start:]]

    def _attribute(self, value: str, written: str) -> MarkedText | None:
        """The text of an attribute's value; None where it has no words."""
        quote = written[: len(written) > len(value)]
        if not has_words(decoded(value)) or value.lstrip().startswith(("{", "<")):
            return None
        text = plain_text(value, self._new_spelling(quote or '"'))
        if quote:
            return replace(text, before=quote + text.before, after=text.after + quote)
        return replace(text, finish=_quoted)


def _ends_reading(token: Token) -> bool:
    begins = token.kind == "start" and token.name in READINGS | {"rb"}
    return begins or (token.kind == "end" and token.name in READINGS | {"ruby"})


def _quoted(value: str) -> str:
    """A value that had no quotes, with quotes where it needs them now."""
    return f'"{value}"' if not value or any(c.isspace() or c in "\"'=<>`" for c in value) else value


def _is_shown(token: Token, name: str) -> bool:
    """True if this attribute is shown for this element; for other elements, the same attribute is not."""
    if name == "content" and token.name == "meta":
        described = token.attribute("name") or token.attribute("property") or ""
        return described.strip().lower() in _DESCRIPTIONS
    if name == "value" and token.name == "input":
        return (token.attribute("type") or "").strip().lower() in _BUTTONS
    return name == "label" and token.name in _LABELLED


def _divided(run: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """The run; if it has no words outside the controls of a form, it is divided at their borders."""
    if not any(token.name in CONTROLS for token in run):
        yield run
        return
    borders, depth, has_words_outside = [0], 0, False
    for i, token in enumerate(run):
        if token.kind in ("start", "end") and token.name in CONTROLS:
            depth = depth + 1 if token.kind == "start" else max(0, depth - 1)
            borders += [i] if token.kind == "start" else [i + 1]
        elif not depth and token.kind in ("text", "literal"):
            has_words_outside |= has_words(decoded(token.raw))
    yield from [run] if has_words_outside else (run[i:j] for i, j in pairwise([*borders, len(run)]))


def _is_translated(token: Token, before: bool) -> bool:
    """True if the content of an element is translated. An element that does not say is treated as the one
    around it (`before`).
    """
    if "notranslate" in (token.attribute("class") or "").split():
        return False
    return {"no": False, "yes": True, "": True}.get(
        (token.attribute("translate") or "-").strip().lower(), before
    )
