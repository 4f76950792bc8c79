"""Catalogues of gettext (.po): entries without a translation, or with a fuzzy one, are translated."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from transformer_mt.documents.markup.marked_text import MarkedText, Piece, Stays
from transformer_mt.documents.strings.quoted import CHOICES, FINISHED, is_choice, pieces_of_string
from transformer_mt.errors import InputError

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_FIELD = re.compile(
    r"^(?P<key>msgctxt|msgid_plural|msgid|msgstr(?:\[(?P<form>\d+)\])?)(?P<gap>[ \t]+)"
    rf"(?P<value>{_STRING}(?:[ \t]*\r?\n[ \t]*{_STRING})*)",
    re.MULTILINE,
)
_FLAGS = re.compile(r"^#,[^\n]*(?:\n|\Z)", re.MULTILINE)
_OBSOLETE = re.compile(r"(?:^|(?<=\n))#~[^\n]*(?:\n|\Z)")
_BEFORE = re.compile(r"^#\|[^\n]*(?:\n|\Z)", re.MULTILINE)


@dataclass(frozen=True)
class _Entry:
    """An entry: what stands before its fields, such as comments, and these."""

    comments: str
    fields: list[re.Match[str]]

    @cached_property
    def by_key(self) -> dict[str, re.Match[str]]:
        """The first field of each key."""
        return {field["key"]: field for field in reversed(self.fields)}

    @cached_property
    def num_forms(self) -> int:
        """Forms of the plural that it has a translation of."""
        return sum(field["form"] is not None for field in self.fields)

    def raw(self, key: str) -> str:
        """The content of a field in one line; empty without it."""
        return _content(self.by_key[key]) if key in self.by_key else ""

    @property
    def is_fuzzy(self) -> bool:
        return any("fuzzy" in _flags(line) for line in _FLAGS.findall(self.comments[self.begin :]))

    @cached_property
    def begin(self) -> int:
        """The position behind obsolete entries, which are comments with marks of their own."""
        return max((match.end() for match in _OBSOLETE.finditer(self.comments)), default=0)


def parse_po(text: str, name: str) -> list[Piece]:
    """The pieces of a catalogue. What is translated is no longer fuzzy."""
    pieces: list[Piece] = []
    position = 0
    for entry in _entries(text, name):
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
            pieces.append(text[position : field.start("value")])
            is_filled = translates and field["key"].startswith("msgstr")
            pieces += _filled(entry, field) if is_filled else [field["value"]]
            position = field.end()
    return [*pieces, text[position:]]


def _entries(text: str, name: str) -> list[_Entry]:
    """The entries of a catalogue. InputError where it is none."""
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
        if line[0].strip() and not line[0].lstrip().startswith("#"):
            number = text.count("\n", 0, begin + line.start()) + 1
            raise InputError(
                f"{name}:{number}: must be an entry of a .po file, but is {line[0].strip()[:40]!r}"
            )


def _content(field: re.Match[str]) -> str:
    """The characters of a field between its quotes, escaped."""
    return "".join(string[1:-1] for string in re.findall(_STRING, field["value"]))


def _filled(entry: _Entry, field: re.Match[str]) -> list[Piece]:
    """A translation: of the plural for all but the first of several forms."""
    is_plural = field["form"] is not None and (entry.num_forms == 1 or int(field["form"]) > 0)
    key = "msgid_plural" if is_plural else "msgid"
    raw, source = entry.raw(key), entry.by_key[key]
    ending = "\r\n" if "\r\n" in source["value"] else "\n"
    if "\n" not in source["value"]:
        return ['"', *pieces_of_string(raw), '"']
    pieces = pieces_of_string(raw)
    # In several lines, as its source: one after each line break.
    lines = partial(_in_lines, ending=ending)
    return [
        f'""{ending}"',
        *(
            replace(p, finish=lines) if isinstance(p, MarkedText) else _in_lines(p, ending)
            for p in pieces[:-1]
        ),
        *(replace(p, finish=lines) if isinstance(p, MarkedText) else p for p in pieces[-1:]),
        '"',
    ]


def _in_lines(written: str, ending: str) -> str:
    return re.sub(r"(?<!\\)((?:\\\\)*)\\n", rf'\1\\n"{ending}"', written)


def _not_fuzzy(comments: str) -> str:
    """The comments of an entry without the mark, and without what it was translated from before."""

    def without(line: re.Match[str]) -> str:
        flags: Sequence[str] = _flags(line[0])
        if "fuzzy" not in flags:
            return line[0]
        ending = line[0][len(line[0].rstrip()) :]
        kept = [flag for flag in flags if flag != "fuzzy"]
        return f"#, {', '.join(kept)}{ending}" if kept else ""

    return _BEFORE.sub("", _FLAGS.sub(without, comments))


def _flags(line: str) -> list[str]:
    return [flag.strip() for flag in line.removeprefix("#,").split(",")]
