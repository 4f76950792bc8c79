"""Lines of Markdown that only generators of documentation sites know, as lines that the parser knows."""

import re

COMMENT = "<!-- -->"
"""In place of a line without text."""
_LINE = re.compile(
    r"""^(?P<indent>[ \t]*)(?:
        ===[!+]{0,2}[ ]+(?P<tab>"[^"\n]*")                                  # Material for MkDocs: a tab
      | :{3,}[ \t]*[\w-]*(?:\[(?P<label>[^\]\n]*)\]|[ \t]+(?P<title>[^\s{][^\n{]*?))?[ \t]*(?:\{[^{}\n]*\})?
                                                                          # Docusaurus, VitePress: a box
      | -{1,2}8<-{1,2}(?:[ \t][^\n]*)?                                    # a file that is included
      | \[(?:TOC|_TOC_|\[_?TOC_?\])\]                                     # a table of contents
    )[ \t]*$""",
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)


def as_commonmark(text: str) -> str:
    """The text with as many lines: a tab is a box with a title, the title of a box a heading; a border of a
    box and an order to the generator are comments.
    """
    return _LINE.sub(_known, text)


def _known(line: re.Match[str]) -> str:
    if line["tab"]:
        return f"{line['indent']}!!! tab {line['tab']}"
    title = line["label"] or line["title"]
    return f"{line['indent']}{f'# {title}' if title else COMMENT}"
