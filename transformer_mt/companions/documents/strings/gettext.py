"""Catalogues of gettext (.po): entries without a translation, or with a fuzzy one, are translated."""

import gettext
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from transformer_mt.companions.documents.markup.marked_text import MarkedText, Piece, Stays
from transformer_mt.companions.documents.strings.placeholders import (
    CHOICES,
    FINISHED,
    NEEDS_BABEL,
    is_choice,
    pieces_of_string,
    pieces_with_accelerator,
)
from transformer_mt.errors import InputError
from transformer_mt.text.sentences import OF_PROGRAMS

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_FIELD = re.compile(
    r"^(?P<key>msgctxt|msgid_plural|msgid|msgstr(?:\[(?P<form>\d+)\])?)(?P<gap>[ \t]+)"
    rf"(?P<value>{_STRING}(?:[ \t]*(?:\r?\n[ \t]*)?{_STRING})*)",
    re.MULTILINE,
)
_FLAGS = re.compile(r"^#,[^\n]*(?:\n|\Z)", re.MULTILINE)
_OBSOLETE = re.compile(r"(?:^|(?<=\n))#~[^\n]*(?:\n|\Z)")
_PLURAL = re.compile(r"nplurals\s*=\s*(\d{1,2})\s*;\s*plural\s*=\s*([^;\\]{1,500})")
_BEFORE = re.compile(r"^#\|[^\n]*(?:\n|\Z)", re.MULTILINE)


@dataclass(frozen=True)
class _Entry:
    """An entry: its fields, and what stands before them, such as comments."""

    comments: str
    fields: list[re.Match[str]]

    @cached_property
    def by_key(self) -> dict[str, re.Match[str]]:
        """The first field of each key."""
        return {field["key"]: field for field in reversed(self.fields)}

    @cached_property
    def num_forms(self) -> int:
        """Number of plural forms that it has a field for (`msgstr[0]`, ...)."""
        return sum(field["form"] is not None for field in self.fields)

    def raw(self, key: str) -> str:
        """The content of a field on one line; empty if the entry does not have the field."""
        return _content(self.by_key[key]) if key in self.by_key else ""

    @property
    def is_fuzzy(self) -> bool:
        return any("fuzzy" in _flags(line) for line in _FLAGS.findall(self.comments[self.begin :]))

    @cached_property
    def begin(self) -> int:
        """The position after obsolete entries, which are written as comments that begin with `#~`."""
        return max((match.end() for match in _OBSOLETE.finditer(self.comments)), default=0)


def parse_po(text: str, target_lang: str, name: str) -> list[Piece]:
    """The pieces of a catalogue. The header of a template is filled in for the target language. Entries that
    are translated lose their fuzzy flag.
    """
    pieces: list[Piece] = []
    position = 0
    entries = _entries(text, name)
    if entries and not entries[0].raw("msgid"):
        header = entries[0].comments + text[len(entries[0].comments) : entries[0].fields[-1].end()]
        filled = _header(header, target_lang)
        text = filled + text[len(header) :]
        entries = _entries(text, name)
    plural = Plural.of(entries[0].raw("msgstr") if entries else "")
    for entry in entries:
        translates = entry.raw("msgid") and (
            entry.is_fuzzy or not any(_content(f) for f in entry.fields if f["key"].startswith("msgstr"))
        )
        if translates and is_choice(entry.raw("msgid") + entry.raw("msgid_plural")):
            end = entry.fields[-1].end()
            pieces.append(Stays(text[position:end], CHOICES))
            position = end
            continue
        if entry.raw("msgid") and not translates:
            pieces.append(Stays("", FINISHED))
        before, comments = entry.comments[: entry.begin], entry.comments[entry.begin :]
        pieces.append(before + (_not_fuzzy(comments) if translates else comments))
        position += len(entry.comments)
        for field in entry.fields:
            start, position = position, field.end()
            if field["form"] is not None and translates and int(field["form"]) >= plural.count:
                continue  # the template has forms for other languages
            pieces.append(text[start : field.start("value")])
            is_filled = translates and field["key"].startswith("msgstr")
            pieces += _filled(entry, field, plural) if is_filled else [field["value"]]
        if translates and entry.num_forms:
            last, ending = entry.fields[-1], "\r\n" if "\r\n" in text else "\n"
            for form in range(entry.num_forms, len(plural.numbers)):
                pieces += [f"{ending}msgstr[{form}]{last['gap']}", *_filled(entry, last, plural, form)]
    return [*pieces, text[position:]]


@dataclass(frozen=True)
class Plural:
    """The forms of the plural that a catalogue's language has."""

    count: int
    """The number of forms; sys.maxsize if the header does not say."""
    numbers: Sequence[Sequence[int]] = ()
    """For each form, the numbers below 200 that it is used with."""

    @classmethod
    def of(cls, header: str) -> "Plural":
        declared = _PLURAL.search(header)
        if declared is None:
            return cls(sys.maxsize)
        try:
            form_of = gettext.c2py(declared[2])
            forms = [form_of(n) for n in range(200)]
        except (ValueError, ZeroDivisionError, RecursionError):
            return cls(sys.maxsize)
        count = int(declared[1])
        return cls(count, [[n for n in range(200) if forms[n] == form] for form in range(count)])

    def takes_plural(self, form: int, num_forms: int, is_same: bool) -> bool:
        """True if a form is translated from the source's plural, not from its singular. A form for 1 and
        other numbers needs the placeholder of the number, so it is translated from the singular only if that
        has the same placeholders as the plural (`is_same`).
        """
        if form >= len(self.numbers):  # the header does not say
            return num_forms == 1 or form > 0
        numbers = self.numbers[form]
        return numbers != [1] and not (1 in numbers and is_same and self.count > 1)


def _header(header: str, target_lang: str) -> str:
    """The header of a catalogue in UTF-8; what a template leaves open is filled in."""
    header = re.sub(r"(charset=)[\w-]+", r"\1UTF-8", header)
    header = re.sub(r'("Language: *)(\\n")', lambda field: field[1] + target_lang + field[2], header)
    if "nplurals=INTEGER" in header:
        try:
            from babel.messages.plurals import get_plural
        except ImportError:
            raise InputError(NEEDS_BABEL) from None
        forms = str(get_plural(target_lang.replace("-", "_")).plural_forms)
        header = re.sub(r"nplurals=INTEGER[^\n]*?;(?=\\n)", lambda _: forms, header)
        header = _FLAGS.sub(_without_fuzzy, header)
    return header


def _entries(text: str, name: str) -> list[_Entry]:
    """The entries of a catalogue. InputError if the text is not a catalogue."""
    entries: list[_Entry] = []
    fields: list[re.Match[str]] = []
    comments, end, has_translation = "", 0, False
    for field in _FIELD.finditer(text):
        between = text[end : field.start()]
        _refuse_other(text, end, field.start(), name)
        starts = field["key"] in ("msgctxt", "msgid") and has_translation
        if starts or not fields:
            if fields:
                entries.append(_Entry(comments, fields))
            comments, fields, has_translation = between, [], False
        has_translation |= field["key"].startswith("msgstr")
        fields.append(field)
        end = field.end()
    _refuse_other(text, end, len(text), name)
    return [*entries, _Entry(comments, fields)] if fields else entries


def _refuse_other(text: str, begin: int, end: int, name: str) -> None:
    """InputError for a line between two fields that is neither blank nor a comment."""
    for line in re.finditer(r"[^\r\n]+", text[begin:end]):
        if line[0].strip() and not line[0].lstrip().startswith(("#", "domain ")):
            number = text.count("\n", 0, begin + line.start()) + 1
            raise InputError(
                f"{name}:{number}: must be an entry of a .po file, but is {line[0].strip()[:40]!r}"
            )


def _content(field: re.Match[str]) -> str:
    """The characters of a field between its quotes, escaped."""
    return "".join(string[1:-1] for string in re.findall(_STRING, field["value"]))


def _filled(entry: _Entry, field: re.Match[str], plural: Plural, form: int | None = None) -> list[Piece]:
    """The pieces of a field that is translated. `form` is the plural form, by default the field's own."""
    number = int(field["form"] or 0) if form is None else form
    placeholders = [
        Counter(m[0] for m in OF_PROGRAMS.finditer(entry.raw(k))) for k in ("msgid", "msgid_plural")
    ]
    is_same = placeholders[0] == placeholders[1]
    is_plural = field["form"] is not None and plural.takes_plural(number, entry.num_forms, is_same)
    key = "msgid_plural" if is_plural else "msgid"
    raw, source = entry.raw(key), entry.by_key[key]
    ending = "\r\n" if "\r\n" in source["value"] else "\n"
    # If the source is written on several lines, so is the translation: each line break ends a line.
    is_long = "\n" in source["value"]
    lines: Callable[[str], str] = partial(_in_lines, ending=ending) if is_long else str
    pieces = pieces_with_accelerator(raw, pieces_of_string)
    for i, piece in enumerate(pieces):
        if isinstance(piece, MarkedText):
            pieces[i] = replace(piece, finish=partial(_in_order, piece.finish, lines))
        elif not isinstance(piece, Stays) and i + 1 < len(pieces):
            pieces[i] = lines(piece)
    return [f'""{ending}"' if is_long else '"', *pieces, '"']


def _in_order(first: Callable[[str], str], then: Callable[[str], str], body: str) -> str:
    return then(first(body))


def _in_lines(written: str, ending: str) -> str:
    return re.sub(r"(?<!\\)((?:\\\\)*)\\n", rf'\1\\n"{ending}"', written)


def _not_fuzzy(comments: str) -> str:
    """The comments of an entry, without the fuzzy flag and the previous source text (`#|`)."""

    return _BEFORE.sub("", _FLAGS.sub(_without_fuzzy, comments))


def _without_fuzzy(line: re.Match[str]) -> str:
    flags: Sequence[str] = _flags(line[0])
    if "fuzzy" not in flags:
        return line[0]
    ending = line[0][len(line[0].rstrip()) :]
    kept = [flag for flag in flags if flag != "fuzzy"]
    return f"#, {', '.join(kept)}{ending}" if kept else ""


def _flags(line: str) -> list[str]:
    return [flag.strip() for flag in line.removeprefix("#,").split(",")]
