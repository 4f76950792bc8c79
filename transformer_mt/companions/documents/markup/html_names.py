"""The elements of HTML: which stand within a sentence, which end it, which are not translated."""

CONTROLS = frozenset({"button", "label", "meter", "output", "progress"})
"""Elements of forms that stand within a sentence only if it has other words."""
# Elements that stand within a sentence; all others end it. The HTML standard's phrasing content, and what it
# was before.
INLINE = CONTROLS | {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "dfn", "em", "font", "i",
    "ins", "mark", "nobr", "q", "rb", "ruby", "slot", "small", "span", "strong", "sub", "sup", "time", "tt",
    "u",
}  # fmt: skip
CODE = frozenset({"code", "kbd", "samp", "var"})
VOID = frozenset({
    "area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "img", "input", "keygen",
    "link", "meta", "param", "source", "track", "wbr",
})  # fmt: skip
# Within a sentence, but without text of it.
VOID_OBJECTS = frozenset({"embed", "img", "input", "wbr"})
REMOVED = frozenset({"del", "s", "strike"})
"""Text that was taken out of the sentence around it."""
OBJECTS = REMOVED | frozenset({
    "audio", "canvas", "datalist", "iframe", "map", "math", "noembed", "object", "picture", "rp", "rt", "rtc",
    "script", "select", "style", "svg", "template", "video",
})  # fmt: skip
READINGS = frozenset({"rp", "rt", "rtc"})
"""The readings of words in East Asian texts; their end tags may be left out."""
WITH_TEXTS = REMOVED | frozenset({"datalist", "select"})
"""Objects that have texts of their own."""
WITH_ATTRIBUTES = frozenset({"audio", "canvas", "iframe", "map", "object", "picture", "video"})
"""Objects whose elements have texts in their attributes."""
BLOCKS_THAT_STAY = frozenset({"listing", "noscript", "plaintext", "pre", "textarea", "xmp"})

# For each start tag: the open elements that it closes, and the elements that end the search for them.
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "center", "details", "dialog", "dir", "div", "dl",
    "fieldset", "figcaption", "figure", "footer", "form",
    "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr",
    "main", "menu", "nav", "ol", "p", "pre", "search", "section", "summary", "table", "ul", "li", "dd", "dt",
    "listing", "plaintext", "xmp",
})  # fmt: skip
_CELLS = frozenset({"td", "th"})
_SECTIONS = frozenset({"tbody", "thead", "tfoot"})
_OF_CELLS = frozenset({"button", "table", "td", "th", "caption", "object"})
_OF_ROWS = _CELLS | {"tr", "caption", "colgroup"}
_ENDED: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    **{name: (frozenset({"p"}), _OF_CELLS) for name in _BLOCKS},
    "li": (frozenset({"li", "p"}), frozenset({"ul", "ol", "menu", "table", "td"})),
    **{name: (frozenset({"dt", "dd", "p"}), frozenset({"dl", "table", "td"})) for name in ("dt", "dd")},
    **{name: (_CELLS, frozenset({"table"})) for name in _CELLS},
    "tr": (_OF_ROWS, frozenset({"table"})),
    **{name: (_OF_ROWS | _SECTIONS, frozenset({"table"})) for name in _SECTIONS},
    "option": (frozenset({"option"}), frozenset({"select", "datalist"})),
    "optgroup": (frozenset({"option", "optgroup"}), frozenset({"select"})),
    "body": (frozenset({"head"}), frozenset()),
    **{name: (frozenset({"rt", "rp"}), frozenset({"ruby"})) for name in ("rt", "rp")},
}  # fmt: skip


def ended_by(name: str, open_elements: list[str]) -> int:
    """Number of open elements that stay open when an element of this name begins: it ends a paragraph, a row
    of a table ends its last cell.
    """
    ended, border = _ENDED.get(name, (frozenset(), frozenset()))
    stay = len(open_elements)
    for i in reversed(range(len(open_elements))):
        if open_elements[i] in border:
            break
        if open_elements[i] in ended:
            stay = i
    return stay
