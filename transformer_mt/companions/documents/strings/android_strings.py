"""Texts of Android programs (strings.xml)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from transformer_mt.companions.documents.markup.inline_run import pieces_of_run
from transformer_mt.companions.documents.markup.marked_text import (
    BackslashSpelling,
    MarkedText,
    Piece,
    Spelling,
    Stays,
    units,
)
from transformer_mt.companions.documents.markup.tokens import Token, end_of, xml_tokens
from transformer_mt.companions.documents.strings.placeholders import (
    CHOICES,
    FORMS,
    forms_of_plural,
    is_choice,
    pieces_of_cdata,
    with_placeholders,
)
from transformer_mt.errors import InputError

_TEXTS = {"string", "item"}
_AROUND = {"resources", "plurals", "string-array", "array"}
_QUOTED = re.compile(r'(\s*")((?:[^"\\<&]|\\.|&[^;\s]+;)+)("\s*)', re.DOTALL)


class AndroidSpelling(BackslashSpelling):
    """XML with backslash escapes; apostrophes are escaped, too."""

    special: ClassVar = "\\&"
    usual: ClassVar = {**BackslashSpelling.usual, "'": "\\'", "&": "&amp;", "<": "&lt;", ">": "&gt;"}
    _unit = re.compile(rf"{BackslashSpelling._unit.pattern.removesuffix('|.')}|&[^;\s]+;|.", re.DOTALL)

    def units(self, raw: str) -> Iterator[tuple[str, str]]:
        for characters, written in super().units(raw):
            yield ("".join(c for c, _ in units(written)) if written[0] == "&" else characters), written

    def _is_safe(self, text: str, i: int) -> bool:
        """Also True for a quote without a backslash in the source: such quotes preserve white space."""
        return text[i] == '"' or super()._is_safe(text, i)


class _CdataSpelling(AndroidSpelling):
    """AndroidSpelling within a CDATA section, where `&`, `<` and `>` may stand unescaped as in HTML."""

    def _is_safe(self, text: str, i: int) -> bool:
        is_html = text[i] in "&<>"
        return Spelling._is_safe(self, text, i) if is_html else super()._is_safe(text, i)


def parse_android(text: str, target_lang: str, name: str) -> list[Piece]:
    """The pieces of a file. Its strings, arrays and plurals are texts, unless they are marked as not
    translatable. Plurals get the forms of the target language.
    """
    tokens = xml_tokens(text, name)
    root = next(token for token in tokens if token.name)
    if root.name != "resources":
        raise InputError(
            f"{name}: must have the root <resources>, as Android's strings have, but has <{root.name}>"
        )
    forms = forms_of_plural(target_lang) if "<plurals" in text else []
    pieces: list[Piece] = []
    needless: set[str] = set()
    only_there: list[str] = []
    """The forms of a plural that the target language lacks, and those that only it has."""
    position = 0
    while position < len(tokens):
        token = tokens[position]
        pieces.append(token.raw)
        position += 1
        if token.kind != "start":
            continue
        end = end_of(tokens, position - 1)
        is_other = token.name not in _TEXTS and token.name not in _AROUND  # styles, dimensions
        if token.attribute("translatable") == "false" or is_other:
            pieces += [other.raw for other in tokens[position:end]]
            position = end
        elif token.name == "plurals":
            items = {item.attribute("quantity") for item in tokens[position:end] if item.kind == "start"}
            only_there = [form for form in forms if form not in items]
            needless = set(FORMS) - set(forms) if "other" in items else set()
        elif token.name in _TEXTS:
            form, content = token.attribute("quantity"), tokens[position:end]
            gap = tokens[position - 2].raw if not tokens[position - 2].raw.strip() else ""
            position = end
            if form in needless:
                del pieces[-1 - bool(gap) :]
                position += 1
                continue
            pieces += _of_string(content)
            for new in only_there if form == "other" else ():
                pieces += [tokens[end].raw, gap, f'<item quantity="{new}">', *_of_string(content)]
    return pieces


def _of_string(tokens: Sequence[Token]) -> list[Piece]:
    """The content of an element: a text, a reference to another resource, or HTML."""
    written = "".join(token.raw for token in tokens).strip()
    if written.startswith(("@", "?")):
        return [token.raw for token in tokens]
    if is_choice(written):
        return [Stays("".join(token.raw for token in tokens), CHOICES)]
    if (inside := pieces_of_cdata(tokens, _CdataSpelling)) is not None:
        return inside
    quoted = _QUOTED.fullmatch("".join(token.raw for token in tokens))
    if quoted and all(token.kind == "text" for token in tokens):  # quotes that keep white space as it is
        text = pieces_of_run([Token("text", quoted[2])], lambda token: [token.raw], AndroidSpelling())
        return [quoted[1], *text, quoted[3]]
    pieces = pieces_of_run(
        list(with_placeholders(_run(tokens))), lambda token: [token.raw], AndroidSpelling()
    )
    is_first = [not "".join(str(other) for other in pieces[:i]).strip() for i in range(len(pieces))]
    return [
        replace(piece, finish=_no_reference) if first and isinstance(piece, MarkedText) else piece
        for first, piece in zip(is_first, pieces)
    ]


def _no_reference(written: str) -> str:
    """Put a backslash before a leading `@` or `?`, which would make the text a reference."""
    return f"\\{written}" if written.startswith(("@", "?")) else written


def _run(tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens of a string; `<xliff:g>` is text that stays."""
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token.kind == "start" and token.name.endswith(":g"):
            end = end_of(tokens, position) + 1
            parts = tuple(tokens[position:end])
            has_text = any(part.kind == "text" and part.raw.strip() for part in parts)
            yield Token("literal" if has_text else "object", "".join(p.raw for p in parts), token.name, parts)
            position = end
        else:
            yield token
            position += 1
