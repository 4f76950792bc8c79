"""Placeholders of programs that would be words in other texts: they stay in the texts of interfaces."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from transformer_mt.companions.documents.markup.html import parse_html
from transformer_mt.companions.documents.markup.inline_run import pieces_of_run
from transformer_mt.companions.documents.markup.marked_text import (
    BackslashSpelling,
    MarkedText,
    Piece,
    PlainSpelling,
    Spelling,
    Stays,
)
from transformer_mt.companions.documents.markup.tokens import Token
from transformer_mt.errors import InputError

CODES = "values that are no language"
_DATE = r"(?:y{1,4}|Y{1,4}|M{1,5}|L{1,5}|d{1,4}|D{1,4}|E{1,5}|H{1,2}|h{1,2}|m{1,2}|s{1,2}|S{1,3}|a|A|z|Z|X)"
_KINDS = (
    r"#(?:[0-9a-fA-F]{3,4}){1,2}|(?:rgb|hsl)a?\([^()]*\)",  # colours
    r"-?\d+(?:\.\d+)?(?:px|r?em|vh|vw|pt|ms|fr|dpi)",  # sizes and times
    r"[a-z]{2,3}[-_](?:[A-Z][a-z]{3}[-_])?(?:[A-Z]{2}|\d{3})|[a-z]{2,3}[-_][A-Z][a-z]{3}",  # locales
    r"(?:~|\.{1,2})?/\S*|[\w.-]+(?:/[\w.-]+)*\.[a-z][a-z0-9]{1,3}",  # paths and files
    r"(?:application|audio|font|image|multipart|text|video)/[\w.+-]+",  # media types
    rf"(?=.*(?:yy|YY|MM|dd|DD|HH|hh|mm|ss))'?{_DATE}(?:[^\w]+{_DATE})+'?",  # patterns of dates
    r"(?:(?:fa[bdlrs]?|mdi|bi|icon|glyphicon|material|ti|ri|la)(?:-[\w-]+)?\s+)?"
    r"(?:fa[bdlrs]?|mdi|bi|icon|glyphicon|material|ti|ri|la)-[\w-]+",  # names of icons
    r":[a-z0-9_+-]+:|@[\w.-]+",  # emoji and users
    r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+|[a-z]{2,}\w*(?:\.[a-z]\w+)+",  # names in code
    r"ltr|rtl|utf-?8|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
)
_CODE = re.compile("|".join(f"(?:{kind})" for kind in _KINDS))


def is_code(raw: str) -> bool:
    """True if the whole string is one value of a kind above, such as a colour or a path."""
    return _CODE.fullmatch(raw.strip()) is not None


NEEDS_BABEL = "this needs babel: pip install 'transformer-mt[documents]'"
FORMS = ("zero", "one", "two", "few", "many", "other")


def forms_of_plural(lang: str) -> list[str]:
    """`one` and `other` for German. InputError without babel."""
    try:
        from babel import Locale, UnknownLocaleError
    except ImportError:
        raise InputError(NEEDS_BABEL) from None
    try:
        tags = Locale.parse(lang.replace("-", "_")).plural_form.tags
    except (UnknownLocaleError, ValueError):
        tags = frozenset({"one"})
    return [form for form in FORMS if form in tags | {"other"}]


# Laravel's `:name`, i18next's `__name__`, `$NAME$` and `$1` of browsers' extensions, `@:key` of Vue.
_PLACEHOLDER = re.compile(
    r"((?<![\w:/]):[A-Za-z_]\w*:?|(?<!\w)__[A-Za-z][\w.]*?__(?!\w)|\$[A-Za-z_]\w*\$|\$\d(?![\d.,])"
    r"|@(?:\.\w+)?:(?:\(\S+?\)|\w+(?:\.\w+)*))"
)


def with_placeholders(tokens: Iterable[Token]) -> Iterator[Token]:
    """The tokens, with placeholders in texts as text that stays."""
    for token in tokens:
        if token.kind != "text":
            yield token
            continue
        for i, part in enumerate(_PLACEHOLDER.split(token.raw)):
            if i % 2:
                yield Token("literal", part, "code", (Token("text", part),))
            elif part:
                yield Token("text", part)


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


# `&` and `~` mark an accelerator within a word, too, but not between capitals (R&D). Within a word, `_` is
# part of a name.
_ACCELERATOR = re.compile(
    r"(?P<mark>[&~])(?!\w+[;=])(?:(?<![^\W_].)(?=[^\W\d_])|(?<=[^\W\d_].)(?=[a-z]))|(?<!\w)(?P<low>_)(?=[^\W\d_])"
)


def pieces_with_accelerator(
    raw: str,
    pieces_of: Callable[[str], list[Piece]],
    read: Callable[[str], str] = str,
    write: Callable[[str], str] = str,
) -> list[Piece]:
    """The pieces of a string. The mark of its accelerator key is left out of the text, and set again in the
    translation. `read` decodes what is written in the format, `write` encodes it again.
    """
    plain, marked = without_accelerator(read(raw))
    if plain == read(raw):
        return pieces_of(raw)
    pieces = pieces_of(write(plain))
    main = next((i for i, piece in enumerate(pieces) if isinstance(piece, MarkedText)), None)
    if main is None:  # what stays keeps its mark
        return [Stays(raw, piece.what) if isinstance(piece, Stays) else raw for piece in pieces[:1]]
    text = pieces[main]
    assert isinstance(text, MarkedText)
    return [*pieces[:main], replace(text, finish=lambda body: write(marked(read(body)))), *pieces[main + 1 :]]


def without_accelerator(raw: str) -> tuple[str, Callable[[str], str]]:
    """The string without its accelerator mark, and a function that sets the mark in a translation: before the
    same letter, if possible at the beginning of a word, or else before the first word. A string that does not
    have exactly one mark stays as it is.
    """
    places = list(_ACCELERATOR.finditer(raw))
    if len(places) != 1 or raw.count(places[0][0]) > 1:
        return raw, str
    place = places[0]
    letter = raw[place.end()].casefold()

    def marked(translation: str) -> str:
        starts = [match.start() for match in re.finditer(r"(?<![\w\\])[^\W\d_]", translation)]
        others = [i for i, character in enumerate(translation) if character.casefold() == letter]
        same = [i for i in starts if translation[i].casefold() == letter]
        same += [i for i in others if translation[:i][-1:] != "\\"]
        at = next(iter([*same, *starts]), None)
        return translation if at is None else f"{translation[:at]}{place[0]}{translation[at:]}"

    return raw[: place.start()] + raw[place.end() :], marked
