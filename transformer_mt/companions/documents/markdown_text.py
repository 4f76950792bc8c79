"""Markdown: paragraphs, headings, items and cells are translated; code, addresses and markup stay.

markdown-it-py finds the blocks and the markup; everything but the words is written unchanged. Lines in the
syntax of documentation site generators are first replaced by lines that the parser knows.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

from transformer_mt.companions.documents.markup.inline_run import pieces_of_run
from transformer_mt.companions.documents.markup.marked_text import (
    BYTE_ORDER_MARK,
    MarkedText,
    Piece,
    Spelling,
    Stays,
    units,
)
from transformer_mt.companions.documents.markup.tokens import Token
from transformer_mt.errors import InputError
from transformer_mt.text.sentences import has_words

COMMENT = "<!-- -->"
"""In place of a line without text."""
ORDER = r"\{\{[<%](?:(?!\}\}|\{\{)[^\n])*\}\}|\{%(?:(?!%\}|\{%)[^\n])*%\}"
"""A tag of Hugo or Jekyll, which tells the generator what to insert or do."""
_CODE = re.compile(r"^([ \t]*)(?:\{%-?|\{\{[<%])[ ]*(?:end|/[ ]*)?highlight\b[^\n]*$", re.MULTILINE)
_DIRECTIVE = re.compile(
    r"""^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,}|:{3,})\{
    (?!code|sourcecode|literalinclude|include|math|mermaid|graphviz|eval|raw|toctree|bibliography|doctest|csv)
    [a-z][\w:-]*\}(?P<title>[^\n]*)(?P<options>(?:\n[ \t]*:[\w-]+:[^\n]*)*)\n
    (?P<text>(?:[^\n]*\n){0,400}?)[ \t]*(?P=fence)[ \t]*$""",
    re.MULTILINE | re.VERBOSE,
)
"""A MyST directive with text, of at most 400 lines. The parser would take it for code."""
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
    """The text as the parser knows it, with the same number of lines: a tab becomes a box with a title, the
    title of a box a heading, and borders of boxes and tags for the generator become comments.
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


_FRONT_MATTER = re.compile(
    r"(?:[A-Za-z][\w-]*:[ \t]+\S[^\r\n]*\r?\n){2,}(?=\r?\n)"
    r"|---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*\r?\n|\+\+\+[ \t]*\r?\n.*?^\+\+\+[ \t]*\r?\n",
    re.DOTALL | re.MULTILINE,
)
_LINK_END = re.compile(
    r"\]\([ \t\r\n]*(?:<[^<>\r\n]*>|(?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.|\([^\s()]*\))*\))*)"
    r"(?:\s+(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\)))?\s*\)"
    r"|\]\[[^\]]*\]|\]"
)
_BREAK = re.compile(r"(?:\\|[ \t]*)\r?\n(?P<start>[ \t]*(?:>[ \t]?)*[ \t]*)")
_BEGINS_ITEM = re.compile(r"(?<=\n)([ \t]*(?:>[ \t]?)*)([-+#]|#{2,6}|1[.)])(?=\s)")
"""The beginnings of an item or a heading within a paragraph."""
_SAME_LABEL = re.compile(r"\[([^\[\]]+)\]\[\1\]")
_MATH_BLOCK = r"\$\$(?:(?!\$\$).)+\$\$"
_MATH = r"(?<![\\\w$])\$(?=[^\s$])(?:\\.|[^$\\\r\n])*(?<=[^\s$])\$(?![\w$])"
# Marks around words, which a text has in pairs: ==marked==, ++added++, ^^added^^, !!hidden!!, CriticMarkup.
_OPENING = {"{++": "++}", "{--": "--}", "{==": "==}", "{>>": "<<}", ">!": "!<"}
_DOUBLED = r"(?<![=^+!%|])(?:==|\^\^|\+\+|!!|%%|\|\|)(?![=^+!%|])"
_MARKS = "|".join([*map(re.escape, [*_OPENING, *_OPENING.values()]), _DOUBLED])
_ASIDE = re.compile(
    rf"({ORDER}|(?<![\w:]):[a-z0-9][\w+-]*:(?![\w:])|^\[[ xX]\](?=\s)"
    r"|(?m:^)(?::::[^\r\n]*|(?:!!!|\?\?\?\+?)[ ]+[\w-]+)|\{[ ]*(?:[:#.@][\w :.#-]|[\w-]+=)[^{}\r\n]*\}"
    r"|\[(?=[^\[\]\r\n]*\]\{[:#.])|\](?=\{[:#.][^{}\r\n]*\})"
    r"|!?\[\[[^\[\]|\r\n]*(?:\]\]|\|)|(?<=[^\]])\]\](?![\](\[])"
    rf"|(?s:{_MATH_BLOCK})|{_MATH}|\\begin\{{[^{{}}\s]+\}}(?s:.)*?\\end\{{[^{{}}\s]+\}}"
    r"|\\\((?:(?!\\\)).)*[\\^_=+](?:(?!\\\)).)*\\\)|\\\[(?:(?!\\\]).)*[\\^_=+](?:(?!\\\]).)*\\\]"
    rf"|\{{/\*.*?\*/\}}|\[=\s*\d[^\]\r\n]*\]|\+\+[\w-]+(?:\+[\w-]+)+\+\+|\^\[[^\[\]\r\n]*\]"
    rf"|\w+(?:\^[^\s^]+\^|~[^\s~]+~)\w*|{_MARKS})"
)
"""Inline syntax besides CommonMark: tags for the generator of a site, icons, the boxes of tasks, borders of
boxes around text, lists of attributes (kramdown), the pages of wiki links, mathematics, comments, progress
bars, keys, inline notes, words with raised or lowered parts, and marks around words.
"""
_LITERAL = re.compile(r"\$|\\[begin(\[]|\{/|\[=|\+\+[\w-]+\+|\^\[|\w+[\^~]")
"""The beginnings of what _ASIDE finds that stands for a word."""
_LOST = "texts whose markup could not be followed"
_MARKUP = re.compile(
    rf"<!--.*?-->|<(script|style|pre)\b.*?(?:</\1>|\Z)|<[^<>]*>|{ORDER}", re.DOTALL | re.IGNORECASE
)
_SHOWN = re.compile(r"\s(?:alt|aria-label|caption|content|description|label|summary|title)=[\"']([^\"'<>]*)")
"""Attributes with text."""
_TITLES = {
    "titles of links": re.compile(
        r"\]\([^\s()]*(?:\([^()]*\)[^\s()]*)*\s+[\"'][^\"'\r\n]*[^\W\d_]{2}[^\"'\r\n]*[\"']\s*\)"
        r"|^[ ]{0,3}\[[^\]\r\n]+\]:[ \t]*\S+[ \t]+[\"'(][^\"'()\r\n]*[^\W\d_]{2}",
        re.MULTILINE,
    ),
    "titles of code": re.compile(
        r"^[ \t>]*[`~]{3,}[^`\r\n]*\s(?:title|caption)=[\"'][^\"'\r\n]*[^\W\d_]{2}", re.MULTILINE
    ),
    "options of boxes": re.compile(
        r"^[ \t>]*:(?:alt|caption|figcaption|label|title):[ \t]+[^\r\n]*[^\W\d_]{2}", re.MULTILINE
    ),
    "texts of roles": re.compile(
        r"\{(?!math|code|eval|cite|py:|c:|cpp:|js:|rst:)[a-z][\w:-]*\}"
        r"`[^`\r\n]*[^\W\d_]{2}[^`\r\n]*[\s(][^`\r\n]*`"
    ),
    "notes in sentences": re.compile(r"\^\[[^\[\]\r\n]*[^\W\d_]{2}[^\[\]\r\n]*\]"),
    "labels of bars": re.compile(r"\[=\s*\d[^\]\r\n]*[^\W\d_]{2}[^\]\r\n]*\]"),
}
"""Texts in markup that a page shows, and that stay."""
_CODE_LINES = re.compile(r"(?:(?:import\s.*['\"];?|export\s.*[=({;].*)(?:\r?\n|\Z))+")
"""A block of MDX, which is JavaScript."""
_BEGINS_MARKUP = re.compile(r"[-+#>=]|\d{1,9}[.)](?=\s)")
_PUNCTUATION = r"[!-/:-@\[-`{-~]"
_UNIT = re.compile(rf"\\{_PUNCTUATION}|(?:\r?\n)[ \t]*(?:>[ \t]?)*[ \t]*|&[^;\s]+;|.", re.DOTALL)


class MarkdownSpelling(Spelling):
    """Characters that are markup have a backslash; a line end is followed by the markup of the next line."""

    special: ClassVar = "\\&\r\n"
    usual: ClassVar = {c: f"\\{c}" for c in "*[]`<\\"}

    def units(self, raw: str) -> Iterator[tuple[str, str]]:
        for unit in _UNIT.findall(raw):
            if unit[0] == "\\" and len(unit) > 1:
                yield unit[1], unit
            elif unit[0] in "\r\n":
                yield "\n", unit
            elif unit[0] == "&" and len(unit) > 1:
                yield "".join(characters for characters, _ in units(unit)), unit
            else:
                yield unit, unit

    def _is_safe(self, text: str, i: int) -> bool:
        return True  # as in the source, where it is no markup


def parse_markdown(text: str) -> list[Piece]:
    """The pieces of a text. A front matter stays."""
    try:
        from markdown_it import MarkdownIt
        from mdit_py_plugins.admon import admon_plugin
        from mdit_py_plugins.deflist import deflist_plugin
        from mdit_py_plugins.footnote import footnote_plugin
    except ImportError as error:
        raise InputError(f"this needs {error.name}: pip install 'transformer-mt[documents]'") from None
    mark = text[: text.startswith(BYTE_ORDER_MARK)]
    front = _FRONT_MATTER.match(text, len(mark))
    begin = front.end() if front else len(mark)
    body = text[begin:]
    pieces: list[Piece] = [text[: len(mark)], *_kept(text[len(mark) : begin], "blocks of front matter")]
    position = 0
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).use(admon_plugin).use(deflist_plugin)
    parser.use(footnote_plugin, inline=False, move_to_end=False, always_match_refs=True)
    pieces += [Stays("", what) for what, pattern in _TITLES.items() for _ in pattern.finditer(body)]
    for block, start, end in _blocks(parser, body):
        if end <= start:
            pieces.append(Stays("", _LOST))
            continue
        pieces += [body[position:start], *_of_block(body[start:end], block)]
        position = end
    return [*pieces, body[position:]]


def _blocks(parser: Any, text: str) -> Iterator[tuple[Any, int, int]]:
    """(token, begin, end) of each block of text or HTML: the range of its characters, without the markup
    before its first line and after its last. The range is empty if the block is not found where it was
    expected.
    """
    normal = text.replace("\r\n", "\n").replace("\r", "\n")
    starts = [0, *(end.end() for end in re.finditer(r"\r\n?|\n", text)), len(text)]
    position = 0
    for token in parser.parse(as_commonmark(normal)):
        if token.type not in ("inline", "html_block") or not token.content.strip():
            continue
        if token.content.strip() == COMMENT:
            line = slice(starts[token.map[0]], starts[min(token.map[1], len(starts) - 1)])
            if order := re.search(rf"(?:{ORDER})+", text[line]):
                position = line.start + order.end()
                yield token, line.start + order.start(), position
            continue
        lines = token.content.split("\n")
        first, last = token.map[0], token.map[0] + len(lines) - 1
        end_of_last = starts[min(last + 1, len(starts) - 1)]
        if "|" in token.content and first == last:  # in a cell of a table, where it has a backslash
            escaped = token.content.strip().replace("|", "\\|")
            begin = text.find(escaped, max(position, starts[first]), end_of_last)
            if begin >= 0:
                position = begin + len(escaped)
                yield token, begin, position
                continue
        begin = text.find(lines[0].strip(), max(position, starts[first]), end_of_last)
        at = begin if first == last else starts[last]
        end = text.find(lines[-1].strip(), at) + len(lines[-1].strip())
        if begin < 0 or end > end_of_last or end <= begin:
            yield token, 0, 0
            continue
        position = end
        yield token, begin, end


def _of_block(raw: str, block: Any) -> list[Piece]:
    """The pieces of a block. It is not translated if its text cannot be followed character by character."""
    added: set[str] = set()
    if block.type == "html_block":
        return _kept(
            raw, "blocks of HTML" if block.content.strip() != COMMENT else "orders to generators of sites"
        )
    if re.fullmatch(_MATH_BLOCK, raw.strip(), re.DOTALL) or _CODE_LINES.fullmatch(raw):
        return [raw]
    try:
        run = list(_run(raw, block.children or [], added))
    except _LostError:
        return _kept(raw, _LOST)
    pieces = pieces_of_run(run, _written, MarkdownSpelling())
    begins = _BEGINS_MARKUP.match(raw) is not None
    return [
        replace(piece, finish=partial(_finished, is_first=not begins and not any(pieces[:i]), added=added))
        if isinstance(piece, MarkedText)
        else piece
        for i, piece in enumerate(pieces)
    ]


def _kept(raw: str, what: str) -> list[Piece]:
    """Text that stays; it is counted if it has words."""
    shown = " ".join(_SHOWN.findall(raw))
    return [Stays(raw, what) if has_words(f"{shown} {_MARKUP.sub(' ', raw)}") else raw]


def _finished(body: str, is_first: bool, added: set[str]) -> str:
    """A translation with a backslash before whatever would begin a heading or an item at the beginning of a
    line, or of the block (`is_first`). Labels that were `added` are removed where they equal the text of
    their link.
    """
    if added:
        body = _SAME_LABEL.sub(lambda match: f"[{match[1]}]" if match[1] in added else match[0], body)
    body = _BEGINS_ITEM.sub(lambda match: match[1] + _escaped(match[2]), body)
    match = _BEGINS_MARKUP.match(body) if is_first else None
    return _escaped(match[0]) + body[match.end() :] if match else body


def _escaped(markup: str) -> str:
    return f"{markup[:-1]}\\{markup[-1]}"


class _LostError(Exception):
    """The text is not where it was expected."""


def _run(raw: str, children: Sequence[Any], added: set[str]) -> Iterator[Token]:
    """The tokens of a block of text. A link written as `[text]` gets a label, which is put into `added`."""
    position = 0
    text = ""
    """Text that is not yielded yet."""
    labels: list[int] = []
    """Where the texts of the open links begin."""
    skipped = 0
    """Ends of links to pass over."""
    taken_out = 0
    """Tokens still to skip: struck-through text has been read separately."""
    for i, child in enumerate(children):
        kind = child.type
        if taken_out:
            taken_out -= 1
            continue
        if kind in ("text", "text_special"):
            if skipped:
                continue
            end = _end_of_text(raw, position, child.content)
            text += raw[position:end]
            position = end
            continue
        if kind in ("softbreak", "hardbreak"):
            match = _BREAK.match(raw, position)
            if match is None:
                raise _LostError
            if kind == "softbreak":
                text += match[0]
            else:
                yield from _texts(text)
                text = ""
                yield Token("object", match[0], "br")
            position = match.end()
            continue
        yield from _texts(text)
        text = ""
        if kind == "link_open" and child.markup == "autolink":
            end = raw.index(">", position) + 1
            yield Token("object", raw[position:end], "img")
            position, skipped = end, 1
        elif kind == "footnote_ref":
            end = _closing_bracket(raw, position) + 1
            yield Token("object", raw[position:end])
            position = end
        elif kind == "s_open" and (end := raw.find(child.markup, position + len(child.markup))) > 0:
            taken_out = next((n for n, other in enumerate(children[i:]) if other.type == "s_close"), 0)
            inside = _run(raw[position + len(child.markup) : end], children[i + 1 : i + taken_out], added)
            end += len(child.markup)
            yield Token("object", raw[position:end], child.markup, tuple(inside))
            position = end
        elif kind == "link_close" and skipped:
            skipped = 0
        elif kind == "link_open":
            yield Token("start", _expect(raw, position, "["), f"a{child.level}")
            position += 1
            labels.append(position)
        elif kind == "link_close":
            match = _LINK_END.match(raw, position)
            if match is None:
                raise _LostError
            label = raw[labels.pop() : position]
            if match[0] == "]":
                added.add(label)
            yield Token("end", _with_label(match[0], label), f"a{child.level}")
            position = match.end()
        elif kind == "image":
            end = _end_of_image(raw, position)
            yield Token("object", raw[position:end], "img", (Token("text", raw[position:end]),))
            position = end
        elif kind == "code_inline":
            mark = _expect(raw, position, child.markup)
            end = raw.find(mark, position + len(mark))
            while end >= 0 and (raw[end - 1] == "`" or raw[end + len(mark) : end + len(mark) + 1] == "`"):
                end = raw.find(mark, end + 1)
            if end < 0:
                raise _LostError
            end += len(mark)
            yield Token("literal", raw[position:end], "code", (Token("text", raw[position:end]),))
            position = end
        elif kind == "html_inline":
            written = _expect(raw, position, child.content)
            tag = re.match(r"<(/?)([A-Za-z][\w-]*)", written)
            is_pair = tag is not None and not written.endswith("/>")
            name = tag[2].lower() if tag else ""
            yield Token(("end" if tag and tag[1] else "start") if is_pair else "object", written, name)
            position += len(written)
        elif kind.endswith(("_open", "_close")) and child.markup:
            written = _expect(raw, position, child.markup)
            yield Token(
                "start" if kind.endswith("_open") else "end",
                written,
                f"{kind.rpartition('_')[0]}{child.level}",
            )
            position += len(written)
        else:
            raise _LostError
    yield from _texts(text)
    if raw[position:].strip():
        raise _LostError


def _texts(text: str) -> Iterator[Token]:
    closed = set(re.findall(r"\{[{%][^\w/]{0,9}(?:/\s{0,9}|end)([\w-]+)", text))
    """The names of tags that enclose text: these have an end tag."""
    parts = _ASIDE.split(text)
    ends = _pairs(parts)
    for i, part in enumerate(parts):
        is_page = part.startswith("[[") and part.endswith("]]")
        order = re.match(r"\{[{%][^\w/]*(?:/\s*|end)?([\w-]+)", part)
        is_alone = order is not None and order[1] not in closed
        if i in ends:
            yield Token(ends[i], part, "mark")
        elif i % 2 and (is_page or is_alone or _LITERAL.match(part)):
            yield Token("literal", part, "code", (Token("text", part),))
        elif part:
            yield Token("object" if i % 2 else "text", part)


def _pairs(parts: Sequence[str]) -> dict[int, Literal["start", "end"]]:
    """The numbers of marks that stand in pairs, each with its kind: start or end."""
    found: dict[int, Literal["start", "end"]] = {}
    waiting: dict[str, int] = {}
    for i in range(1, len(parts), 2):
        if not re.fullmatch(_MARKS, parts[i]):
            continue
        if parts[i] in waiting:
            found |= {waiting.pop(parts[i]): "start", i: "end"}
        elif parts[i] not in _OPENING.values():
            waiting[_OPENING.get(parts[i], parts[i])] = i
    return found


def _with_label(end: str, label: str) -> str:
    """The end of a link. If the link is found by its text, the original text becomes its label, because the
    text itself is translated.
    """
    return f"][{_BREAK.sub(' ', label)}]" if end in ("]", "][]") else end


def _expect(raw: str, position: int, written: str) -> str:
    if not raw.startswith(written, position):
        raise _LostError
    return written


def _end_of_text(raw: str, position: int, content: str) -> int:
    """The end position of characters that are written with escapes and references."""
    done = 0
    while done < len(content):
        if raw.startswith(content[done], position) and not (
            raw[position] in "\\&" and _is_escape(raw, position)
        ):
            done, position = done + 1, position + 1
            continue
        match = _UNIT.match(raw, position)
        if match is None:
            raise _LostError
        (characters, written), *_ = MarkdownSpelling().units(match[0])
        if not characters or not content.startswith(characters, done):
            raise _LostError
        done, position = done + len(characters), position + len(written)
    return position


def _is_escape(raw: str, position: int) -> bool:
    match = _UNIT.match(raw, position)
    return match is not None and len(match[0]) > 1


def _end_of_image(raw: str, position: int) -> int:
    """The end position of `![text](address)`."""
    _expect(raw, position, "![")
    match = _LINK_END.match(raw, _closing_bracket(raw, position + 1))
    assert match, "it begins with a bracket"
    return match.end()


def _closing_bracket(raw: str, at: int) -> int:
    """The position of the bracket that closes the one at the position `at`."""
    depth = 0
    while at < len(raw):
        if raw[at] == "\\":
            at += 1
        elif raw[at] == "[":
            depth += 1
        elif raw[at] == "]":
            depth -= 1
            if not depth:
                return at
        at += 1
    raise _LostError


def _written(token: Token) -> list[Piece]:
    """The pieces of a token: its markup, and the text of an image or of struck-through words."""
    if token.name.startswith("~"):
        return [token.name, *pieces_of_run(list(token.parts), _written, MarkdownSpelling()), token.name]
    if token.name != "img" or not token.raw.startswith("!["):
        return [token.raw]
    end = _closing_bracket(token.raw, 1)
    inside = pieces_of_run([Token("text", token.raw[2:end])], lambda part: [part.raw], MarkdownSpelling())
    has_text = any(isinstance(piece, MarkedText) for piece in inside)
    closing = _with_label(token.raw[end:], token.raw[2:end]) if has_text else token.raw[end:]
    return ["![", *inside, closing]
