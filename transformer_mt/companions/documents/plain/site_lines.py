"""Lines of Markdown that only generators of documentation sites know, as lines that the parser knows."""

import re

COMMENT = "<!-- -->"
"""In place of a line without text."""
ORDER = r"\{\{[<%](?:(?!\}\}|\{\{)[^\n])*\}\}|\{%(?:(?!%\}|\{%)[^\n])*%\}"
"""An order to Hugo, or to Jekyll."""
_CODE = re.compile(r"^([ \t]*)(?:\{%-?|\{\{[<%])[ ]*(?:end|/[ ]*)?highlight\b[^\n]*$", re.MULTILINE)
_DIRECTIVE = re.compile(
    r"""^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,}|:{3,})\{
    (?!code|sourcecode|literalinclude|include|math|mermaid|graphviz|eval|raw|toctree|bibliography|doctest|csv)
    [a-z][\w:-]*\}(?P<title>[^\n]*)(?P<options>(?:\n[ \t]*:[\w-]+:[^\n]*)*)\n
    (?P<text>(?:[^\n]*\n){0,400}?)[ \t]*(?P=fence)[ \t]*$""",
    re.MULTILINE | re.VERBOSE,
)
"""A directive of MyST that has text, of at most 400 lines: it would be code."""
_FILE = re.compile(r"\S+[./]\S+|\S*")
"""The file of a figure, in the place of a title."""
_LINE = re.compile(
    rf"""^(?P<indent>[ \t]*(?:>[> \t]*)?)(?:
        ===[!+]{{0,2}}[ ]+(?P<tab>"[^"\n]*")                                # Material for MkDocs: a tab
      | :{{3,}}[ \t]*[\w-]*                                                # Docusaurus, VitePress: a box
        (?:\[(?P<label>[^\]\n]*)\]|[ \t]+(?P<title>[^\s{{][^\n{{]*?))?[ \t]*(?:\{{[^{{}}\n]*\}})?
      | (?<=[> \t])\[!\w+\][+-]?(?:[ \t]+(?P<callout>[^\n]*?))?             # GitHub, Obsidian: a box
      | /{{3,}}[ \t]*(?:html\b[^\n]*|[\w.-]*)(?:[ \t]*\|[ \t]*(?P<block>[^\n]*?))?        # PyMdown: a block
      | \([\w:.-]+\)=|\+\+\+[ \t]+\{{[^\n]*\}}|@\[\w+\]\([^()\n]*\)|!!![ ]*include\([^()\n]*\)[ ]*!!!
      | \*\[[^\]\n]+\]:[ \t]+(?P<abbreviated>[^\n]+?)                       # Python-Markdown
      | (?:{ORDER})(?:[ \t]*(?:{ORDER}))*
      | -{{1,2}}8<-{{1,2}}(?:[ \t][^\n]*)?                                    # a file that is included
      | \[(?:TOC|_TOC_|\[_?TOC_?\])\]                                     # a table of contents
    )[ \t]*$""",
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)


def as_commonmark(text: str) -> str:
    """The text with as many lines: a tab is a box with a title, the title of a box a heading; a border of a
    box and an order to the generator are comments.
    """
    text = _CODE.sub(r"\1~~~~~~", text)
    return _LINE.sub(_known, _DIRECTIVE.sub(_opened, text))


def _known(line: re.Match[str]) -> str:
    if line["tab"]:
        return f"{line['indent']}!!! tab {line['tab']}"
    title = line["label"] or line["title"] or line["callout"] or line["block"] or line["abbreviated"]
    return f"{line['indent']}{f'# {title}' if title else COMMENT}"


def _opened(box: re.Match[str]) -> str:
    title, indent = box["title"].strip(), box["indent"]
    title = "" if _FILE.fullmatch(title) else title
    lines = [f"{indent}{f'# {title}' if title else COMMENT}", *[COMMENT] * box["options"].count("\n")]
    return "\n".join([*lines, f"{_DIRECTIVE.sub(_opened, box['text'])}{indent}{COMMENT}"])
