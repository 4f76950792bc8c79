"""YAML of interface texts: the values that are strings; all else stays as it is."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import yaml

from transformer_mt.documents.markup.html_tokens import Token
from transformer_mt.documents.markup.inline_run import pieces_of_run
from transformer_mt.documents.markup.marked_text import MarkedText, Piece
from transformer_mt.documents.markup.spelling import PlainSpelling, SingleQuoteSpelling, YamlSpelling
from transformer_mt.documents.strings.quoted import Choice, is_choice, pieces_of_string
from transformer_mt.errors import InputError

_STRING = "tag:yaml.org,2002:str"
_PROPERTIES = re.compile(r"(?:[&!]\S*[ \t]+)+")
"""An anchor and a tag, which stand before a string."""


def parse_yaml(text: str, name: str) -> list[Piece]:
    """The pieces of a file."""
    try:
        documents = list(yaml.compose_all(text, yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{name}: must be YAML: {' '.join(str(error).split())}") from None
    pieces: list[Piece] = []
    position = 0
    for node, is_in_brackets in sorted(_values(documents), key=lambda found: found[0].start_mark.index):
        properties = _PROPERTIES.match(text, node.start_mark.index)
        begin, end = properties.end() if properties else node.start_mark.index, node.end_mark.index
        pieces += [text[position:begin], *_of_scalar(text[begin:end], node, is_in_brackets)]
        position = end
    return [*pieces, text[position:]]


def _values(nodes: Sequence[yaml.Node | None]) -> Iterator[tuple[yaml.ScalarNode, bool]]:
    """The strings among values and members of lists, those that are anchored once; and whether each stands
    within brackets.
    """
    left: list[tuple[yaml.Node | None, bool]] = [(node, False) for node in nodes]
    seen = set[int]()
    while left:
        node, is_in_brackets = left.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.CollectionNode):
            inside = is_in_brackets or bool(node.flow_style)
            is_mapping = isinstance(node, yaml.MappingNode)
            left += [(member[1] if is_mapping else member, inside) for member in node.value]
        elif isinstance(node, yaml.ScalarNode) and node.tag == _STRING:
            yield node, is_in_brackets


def _of_scalar(raw: str, node: yaml.ScalarNode, is_in_brackets: bool) -> list[Piece]:
    """A string as it is written."""
    if node.style == '"':
        return ['"', *pieces_of_string(raw[1:-1], YamlSpelling()), '"']
    if node.style == "'":
        return ["'", *pieces_of_string(raw[1:-1], SingleQuoteSpelling()), "'"]
    if node.style in ("|", ">"):
        return _of_block(raw, folded=node.style == ">")
    pieces = pieces_of_string(raw, PlainSpelling())
    plain = partial(_plain, is_in_brackets=is_in_brackets)
    return [replace(piece, finish=plain) if isinstance(piece, MarkedText) else piece for piece in pieces]


def _of_block(raw: str, folded: bool) -> list[Piece]:
    """A block of lines: of a folded one a paragraph is a text, of another one a line is."""
    if is_choice(raw):
        return [Choice(raw)]
    pieces: list[Piece] = []
    position = raw.index("\n") + 1 if "\n" in raw else len(raw)
    pieces.append(raw[:position])
    pattern = re.compile(r"(?:[^\r\n]*\S[^\r\n]*(?:\r?\n|\Z))+" if folded else r"[^\r\n]+")
    for found in pattern.finditer(raw, position):
        pieces += [raw[position : found.start()]]
        pieces += pieces_of_run([Token("text", found[0])], lambda token: [token.raw], PlainSpelling())
        position = found.end()
    return [*pieces, raw[position:]]


def _plain(written: str, is_in_brackets: bool) -> str:
    """A translation as a plain scalar where it still is one, else between quotes."""
    try:
        around = f"{{a: {written}}}" if is_in_brackets else f"a: {written}"
        if "\n" not in written and yaml.safe_load(around) == {"a": written}:
            return written
    except yaml.YAMLError:
        pass
    return json.dumps(" ".join(written.split()), ensure_ascii=False)
