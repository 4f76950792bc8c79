"""XLIFF 1.2 and 2, also as Trados, memoQ and Phrase write it: what has no finished target is translated."""

import html
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from transformer_mt.companions.documents.markup.inline_run import pieces_of_run
from transformer_mt.companions.documents.markup.marked_text import Piece, Stays, XmlSpelling
from transformer_mt.companions.documents.markup.tokens import Token, end_of, xml_tokens
from transformer_mt.companions.documents.strings.placeholders import (
    CHOICES,
    FINISHED,
    is_choice,
    pieces_of_cdata,
    pieces_with_accelerator,
    with_placeholders,
)
from transformer_mt.errors import InputError

_UNITS = {"trans-unit", "segment"}
_OPEN_STATES = {"new", "needs-translation", "initial"}
"""States of a target that is not finished, even if it has words."""
_AROUND = {"g", "mrk", "pc"}
"""Elements around words. All other elements, with their content, stand for code."""


def parse_xliff(text: str, target_lang: str, name: str) -> list[Piece]:
    """The pieces of a file; the target language is added if it is missing. InputError if it is not XLIFF."""
    tokens = xml_tokens(text, name)
    root = next((token for token in tokens if token.name), tokens[0])
    if _local(root) != "xliff":
        raise InputError(f"{name}: must have the root <xliff>, but has <{root.name}>")
    is_second = (root.attribute("version") or "").startswith("2")
    language, attribute = ("xliff", "trgLang") if is_second else ("file", "target-language")
    pieces: list[Piece] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token.kind != "start":
            pieces.append(token.raw)
            position += 1
            continue
        end = end_of(tokens, position)
        if token.attribute("translate") == "no":
            pieces += [other.raw for other in tokens[position : end + 1]]
            position = end + 1
        elif _local(token) in _UNITS:
            pieces += _of_unit(tokens[position : end + 1])
            position = end + 1
        else:
            has_one = token.attribute(attribute.lower()) is not None
            is_asked = _local(token) == language and not has_one
            pieces.append(f'{token.raw[:-1]} {attribute}="{target_lang}">' if is_asked else token.raw)
            position += 1
    return pieces


def _local(token: Token) -> str:
    """The name of an element without its prefix."""
    return token.name.rpartition(":")[2]


def _children(tokens: Sequence[Token]) -> list[tuple[int, int]]:
    """The (first, last) token of each element that stands directly in the element of these tokens."""
    children, position = [], 1
    while position < len(tokens) - 1:
        kind = tokens[position].kind
        end = end_of(tokens, position) if kind == "start" else position
        if kind in ("start", "object"):
            children.append((position, end))
        position = end + 1
    return children


def _of_unit(tokens: Sequence[Token]) -> list[Piece]:
    """A unit with a target. Suggestions of other translations, which have targets too, stay."""
    spans = {
        _local(tokens[begin]): (begin, end)
        for begin, end in reversed(_children(tokens))
        if _local(tokens[begin]) in ("source", "seg-source", "target")
    }
    if "source" not in spans or tokens[spans["source"][0]].kind == "object":
        return [*_raw(tokens)]
    begin, end = spans["source"]
    first, last = spans.get("target", (0, 0))
    source, target = tokens[begin + 1 : end], tokens[first + 1 : last]
    is_open = any((token.attribute("state") or "") in _OPEN_STATES for token in (tokens[0], tokens[first]))
    divided = tokens[slice(*spans.get("seg-source", (0, 0)))]
    segments = {mid: divided[start + 1 : stop] for mid, start, stop in _segments(divided)}
    is_divided = bool(segments) and next(_segments(target), None) is not None
    if _has_text(target) and not is_open and not is_divided:
        return [Stays("".join(_raw(tokens)), FINISHED)]
    if segments:
        template = target if is_divided else divided[1:]
        inside = list(_with_segments(template, segments, is_translated=is_divided and not is_open))
    elif what := _why_it_stays(source):
        return [Stays("".join(_raw(tokens)), what)]
    else:
        inside = _translated(source)
    name = f"{tokens[begin].raw[1:].split('source')[0]}target"
    if "target" not in spans:
        gap = tokens[begin - 1].raw if tokens[begin - 1].kind == "text" else ""
        end = spans.get("seg-source", (0, end))[1]
        return [*_raw(tokens[: end + 1]), gap, f"<{name}>", *inside, f"</{name}>", *_raw(tokens[end + 1 :])]
    opening = tokens[first].raw.removesuffix("/>").removesuffix(">").rstrip() + ">"
    return [*_raw(tokens[:first]), opening, *inside, f"</{name}>", *_raw(tokens[last + 1 :])]


def _raw(tokens: Sequence[Token]) -> list[str]:
    return [token.raw for token in tokens]


def _has_text(tokens: Sequence[Token]) -> bool:
    return any(token.raw.strip() for token in tokens if token.kind == "text" or token.name == "cdata")


def _segments(tokens: Sequence[Token]) -> Iterator[tuple[str, int, int]]:
    """The number, first and last token of each segment that a program has divided the text into."""
    position = 0
    while position < len(tokens):
        token, first = tokens[position], position
        if token.kind in ("start", "object") and token.attribute("mtype") == "seg":
            position = end_of(tokens, position) if token.kind == "start" else position
            yield token.attribute("mid") or "", first, position
        position += 1


def _with_segments(
    template: Sequence[Token], segments: Mapping[str, Sequence[Token]], is_translated: bool
) -> Iterator[Piece]:
    """A target, or the divided source if there is none, with its untranslated segments translated."""
    position = 0
    for mid, first, last in _segments(template):
        yield from _raw(template[position:first])
        position = last + 1
        if mid not in segments or (is_translated and _has_text(template[first:position])):
            yield Stays("".join(_raw(template[first:position])), FINISHED)
            continue
        if what := _why_it_stays(segments[mid]):
            yield Stays("".join(_raw(template[first:position])), what)
            continue
        opening = template[first].raw.removesuffix("/>").removesuffix(">").rstrip()
        yield from (f"{opening}>", *_translated(segments[mid]), f"</{opening[1:].split()[0]}>")
    yield from _raw(template[position:])


def _why_it_stays(source: Sequence[Token]) -> str:
    """The kind of a source that is not translated; empty for others."""
    has_cdata = any(token.name == "cdata" for token in source)
    if is_choice("".join(token.raw for token in source if token.kind == "text" or token.name == "cdata")):
        return CHOICES
    return "texts that are CDATA in part" if has_cdata and pieces_of_cdata(source) is None else ""


def _translated(content: Sequence[Token]) -> list[Piece]:
    """The content of a source in pieces."""
    if (inside := pieces_of_cdata(content)) is not None:
        return inside
    if [token.kind for token in content] == ["text"]:
        return pieces_with_accelerator(
            content[0].raw, _of_text, html.unescape, partial(html.escape, quote=False)
        )
    return pieces_of_run(list(with_placeholders(_run(content))), lambda token: [token.raw], XmlSpelling())


def _of_text(raw: str) -> list[Piece]:
    return pieces_of_run(
        list(with_placeholders([Token("text", raw)])), lambda token: [token.raw], XmlSpelling()
    )


def _run(tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens of a source; an element that stands for code is one."""
    position = 0
    while position < len(tokens):
        token = tokens[position]
        end = end_of(tokens, position) + 1 if token.kind == "start" else position + 1
        if token.kind == "start" and _local(token) not in _AROUND:
            yield Token("object", "".join(part.raw for part in tokens[position:end]), token.name)
            position = end
        elif token.kind == "start" and token.attribute("translate") == "no":
            parts = tuple(tokens[position:end])
            yield Token("literal", "".join(part.raw for part in parts), token.name, parts)
            position = end
        else:
            yield token
            position += 1
