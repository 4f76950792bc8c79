"""Words of office documents outside of the texts that are translated: those that a person sees are counted.

The schemas of Office Open XML and of OpenDocument have some thousand attributes and elements of text. Nearly
all are names, addresses, formulas, fonts and numbers of programs; what programs show is below, by kind.
`scripts/schema_words.py` lists them all with their class.
"""

import re
from collections.abc import Iterator

# kind -> (elements@)attributes whose value is shown, elements whose own text is.
_SHOWN: dict[str, tuple[str, ...]] = {
    "tooltips": ("tooltip", "screenTip", "office:title", "xlink:title"),
    "choices of drop-down lists": ("listItem@displayText", "listItem@value", "listEntry@val", "<ListItem>"),
    "prompts and messages of cells": ("prompt", "promptTitle", "error", "errorTitle"),
    "labels of forms": (
        "helpText@val", "statusText@val", "alias@val", "form:label", "form:title", "form:value",
        "form:current-value", "text:help", "text:hint", "suggestedsigner", "signinginstructions",
    ),
    "labels of numbered lists": (
        "lvlText@val", "style:num-prefix", "style:num-suffix", "text:num-prefix", "text:num-suffix",
    ),
    "names of sheets": ("sheet@name",),
    "captions of pivot tables and slicers": (
        "slicer@caption", "timeline@caption", "cacheHierarchy@caption", "pageField@cap", "dataField@name",
        "rowHeaderCaption", "colHeaderCaption", "grandTotalCaption",
        "dataCaption", "missingCaption", "errorCaption", "subtotalCaption", "totalsRowLabel",
    ),
    "texts as pictures (WordArt)": ("textpath@string",),
    "alternative texts of old pictures": ("altText", "shape@alt", "rect@alt", "roundrect@alt", "group@alt"),
    "names of sections": ("section@name", "custShow@name"),
    "properties of the document": (
        "<dc:subject>", "<dc:description>", "<cp:keywords>", "<cp:category>", "<meta:keyword>", "<dc:title>",
    ),
    "texts of number formats": ("<number:text>",),
    "templates of indexes": ("<text:index-title-template>", "<text:index-entry-span>"),
}  # fmt: skip
_LIST = re.compile(r'<(?:\w+:)?formula1(?:\s[^<>]*)?>\s*(?:"|&quot;)([^<]+)')
"""The choices of a cell, where no other cells have them."""
_WORD = re.compile(r"[^\W\d_]{2}")


def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """A pattern whose groups are the values."""
    parts = []
    for name in names:
        element, at, attribute = name.rpartition("@")
        if name.startswith("<"):
            local = name[1:-1]
            tag = local if ":" in local else rf"(?:\w+:)?{local}"
            parts.append(rf"<{tag}(?:\s[^<>]*)?>([^<]+)<")
        elif at:
            parts.append(rf"<(?:[\w-]+:)?{element}\s(?:[^<>]*\s)?(?:\w+:)?{attribute}=[\"']([^\"'<>]*)")
        else:
            prefix = "" if ":" in attribute else r"(?:\w+:)?"
            parts.append(rf"\s{prefix}{attribute}=[\"']([^\"'<>]*)")
    return re.compile("|".join(parts))


_PATTERNS: dict[str, re.Pattern[str]] = {kind: _pattern(names) for kind, names in _SHOWN.items()}


def shown_words(xml: str) -> Iterator[str]:
    """The kind of each value with words that is shown and is no text of a paragraph or a cell."""
    for kind, pattern in [*_PATTERNS.items(), ("choices of drop-down lists", _LIST)]:
        for match in pattern.finditer(xml):
            if _WORD.search(next(filter(None, match.groups()), "")):
                yield kind


def class_of(element: str, attribute: str | None) -> str | None:
    """The kind that an attribute, or the text of an element without one, is counted as; None if it is not."""
    names = {f"<{element}>"} if attribute is None else {attribute, f"{element}@{attribute}"}
    return next((kind for kind, shown in _SHOWN.items() if names & set(shown)), None)
