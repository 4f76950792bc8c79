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
    "choices of drop-down lists": (
        "listItem@displayText", "listItem@value", "listEntry@val", "<ListItem>", "text:label@text:value",
    ),
    "prompts and messages of cells": (
        "prompt", "promptTitle", "error", "errorTitle",
        "table:help-message@table:title", "table:error-message@table:title",
    ),
    "labels of forms": (
        "helpText@val", "statusText@val", "alias@val", "form:label", "form:title", "form:value",
        "form:current-value", "text:help", "text:hint", "suggestedsigner", "signinginstructions",
    ),
    "labels of numbered lists": (
        "lvlText@val", "style:num-prefix", "style:num-suffix", "text:num-prefix", "text:num-suffix",
    ),
    "names of sheets": ("sheet@name",),
    "captions of pivot tables and slicers": (
        "slicer@caption", "timeline@caption", "cacheHierarchy@caption", "cacheField@caption",
        "pageField@cap", "pivotField@name", "dataField@name", "rowHeaderCaption", "colHeaderCaption",
        "grandTotalCaption",
        "dataCaption", "missingCaption", "errorCaption", "subtotalCaption", "totalsRowLabel",
    ),
    "texts as pictures (WordArt)": ("textpath@string",),
    "alternative texts of old pictures": ("altText", "alt"),
    "names of sections": ("section@name", "custShow@name", "presentation:show@presentation:name"),
    "properties of the document": (
        "<dc:subject>", "<dc:description>", "<cp:keywords>", "<cp:category>", "<meta:keyword>", "<dc:title>",
    ),
    "texts of number formats": ("<number:text>", "<number:embedded-text>"),
    "notices of footnotes": (
        "<text:note-continuation-notice-forward>", "<text:note-continuation-notice-backward>",
    ),
    "entries of indexes": (
        "text:alphabetical-index-mark@text:string-value", "text:alphabetical-index-mark@text:key1",
        "text:toc-mark@text:string-value", "text:user-index-mark@text:string-value",
    ),
    "templates of indexes": ("<text:index-title-template>", "<text:index-entry-span>"),
}  # fmt: skip
_WITHIN_VALUES = {
    "choices of drop-down lists": r'<(?:\w+:)?formula1(?:\s[^<>]*)?>\s*(?:"|&quot;)([^<]+)',
    "texts of number formats": (
        r'\sformatCode="(?:[^"&]|&(?!quot;)|&quot;(?:[^"&]|&(?!quot;))*&quot;)*?'
        r"&quot;((?:[^\"&]|&(?!quot;))*?[^\W\d_]{2})"
    ),
    "labels of forms": r">\s*MACROBUTTON\s+\w+\s+([^<]+)",
    "entries of indexes": r'>\s*(?:XE|TC)\s+(?:"|&quot;)(?:<[^<>]*>|\s)*([^<]+)',
}
"""Words within longer values: choices of a cell where no other cells have them, and the codes of fields."""
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


_PATTERNS = [
    *((kind, _pattern(names)) for kind, names in _SHOWN.items()),
    *((kind, re.compile(pattern)) for kind, pattern in _WITHIN_VALUES.items()),
]


def shown_words(xml: str) -> Iterator[str]:
    """The kind of each value with words that is shown and is no text of a paragraph or a cell."""
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(xml):
            if _WORD.search(next(filter(None, match.groups()), "")):
                yield kind


def class_of(element: str, attribute: str | None) -> str | None:
    """The kind that an attribute, or the text of an element without one, is counted as; None if it is not."""
    names = {f"<{element}>"} if attribute is None else {attribute, f"{element}@{attribute}"}
    return next((kind for kind, shown in _SHOWN.items() if names & set(shown)), None)
