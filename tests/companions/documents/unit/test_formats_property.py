"""Random files of text formats through a model that writes capitals come back as they were, but for the
words.
"""

import random
import re

import pytest

from tests.helpers.upper_case import capitals, upper_case_translator
from transformer_mt.companions.documents.document_translation import parse, translate_pieces

_WORDS = ("a", "dog", "runs", "über", "the", "cat,", "(see", "there)", "x.", "what?", "half-way", "Ok")
_OTHERS = ("42", "3.5 kg", "{name}", "%s", "%1$s", "{{x}}", "https://x.example/a?b=c", "🌷", "…")


def phrase(draw, specials=()):
    """Words between single spaces, with what the format writes in its own way."""
    count = draw.randint(1, 6)
    found = [draw.choice(_OTHERS if draw.random() < 0.15 else _WORDS) for _ in range(count)]
    if specials and draw.random() < 0.5:
        found.insert(draw.randint(0, count), draw.choice(specials))
    return " ".join(found)


def json_file(draw):
    specials = (r"\"so\"", r"\\", r"\/", r"\n", r"\t", r"\u2026")

    def value(depth):
        kind = draw.random()
        if kind < 0.6 or depth > 2:
            return draw.choice(('"{}"', '"{}"', '" {}\\n"')).format(phrase(draw, specials))
        if kind < 0.7:
            return draw.choice(("12", "-1.5e3", "true", "null", '""', '" "', '"…"'))
        gap = draw.choice(("", " ", "\n  ", "\r\n\t"))
        parts = [value(depth + 1) for _ in range(draw.randint(0, 3))]
        if kind < 0.8:
            return f"[{gap}{(',' + gap).join(parts)}]"
        named = [f'"KEY {i}"{gap}:{gap}{part}' for i, part in enumerate(parts)]
        return f"{{{gap}{(gap + ',').join(named)}{gap}}}"

    text = value(0)
    return text, text


def android_file(draw):
    specials = (
        r"it\'s", "&amp;", "&lt;", r"\n", "<b>big</b>", '<a href="X">a <i>b</i></a>', "<!-- C -->", r"\"so\"",
    )  # fmt: skip
    parts = []
    for number in range(draw.randint(1, 5)):
        text = phrase(draw, specials)
        parts.append(
            draw.choice((
                f'<string name="N{number}">{text}</string>',
                f'<string name="N{number}"> {text}\n</string>',
                f'<plurals name="P"><item quantity="ONE">{text}</item></plurals>',
                f'<string-array name="A">\n<item>{text}</item><item/></string-array>',
                '<string name="T" translatable="false">STAYS</string>',
                f'<string name="G">{text} <xliff:g id="1">DATA</xliff:g> x</string>',
                f'<string name="C"><![CDATA[<p>{phrase(draw)}</p>]]></string>',
                '<string name="R">@STRING/A</string>', "<!-- COMMENT -->",
            ))
        )  # fmt: skip
    text = '<?xml version="1.0"?>\n<resources xmlns:xliff="U">' + "\n  ".join(parts) + "</resources>\n"
    return text, text


def po_file(draw):
    end = draw.choice(("\n", "\n", "\r\n"))
    source, expected = [], []
    for number in range(draw.randint(1, 5)):
        text, other = phrase(draw, (r"\"so\"", r"\\", r"\t")), phrase(draw)
        before = [f"#. NOTE {number}", "#: FILE.C:1"][: draw.randint(0, 2)]
        after = list(before)
        if is_fuzzy := draw.random() < 0.2:
            before += ["#, fuzzy, C-FORMAT", '#| msgid "OLD"']
            after += ["#, C-FORMAT"]
        if draw.random() < 0.2:
            before, after = [*before, 'msgctxt "CONTEXT"'], [*after, 'msgctxt "CONTEXT"']
        kind = draw.randint(0, 3)
        old = "ALT" if is_fuzzy else ""
        if kind == 0:
            source += [*before, f'msgid "{text}"', 'msgstr "DONE"', ""]
            done = text if is_fuzzy else "DONE"
            expected += [*after, f'msgid "{text}"', f'msgstr "{done}"', ""]
        elif kind == 1:
            plural = [f'msgid "{text}"', f'msgid_plural "{other}"']
            source += [*before, *plural, f'msgstr[0] "{old}"', f'msgstr[1] "{old}"', ""]
            expected += [*after, *plural, f'msgstr[0] "{text}"', f'msgstr[1] "{other}"', ""]
        elif kind == 2:
            lines = ['""', rf'"{text}\n"', f'"{other}"']
            source += [*before, f"msgid {lines[0]}", *lines[1:], f'msgstr "{old}"', ""]
            expected += [*after, f"msgid {lines[0]}", *lines[1:], f"msgstr {lines[0]}", *lines[1:], ""]
        else:
            source += [*before, f'msgid "{text}"', f'msgstr "{old}"', ""]
            expected += [*after, f'msgid "{text}"', f'msgstr "{text}"', ""]
    return tuple(end.join([*lines, '#~ msgid "X"', '#~ msgstr "Y"', ""]) for lines in (source, expected))


def xliff_file(draw):
    specials = (
        '<g id="1">big</g>', '<x id="2"/>', "&amp;", "&lt;b&gt;", '<ph id="3">CODE</ph>',
        '<mrk mtype="protected">Z</mrk>',
    )  # fmt: skip
    source, expected = [], []
    for number in range(draw.randint(1, 5)):
        text = phrase(draw, specials)
        unit, gap = f'<trans-unit id="{number}">', draw.choice(("", "\n  "))
        kept = f"{unit}{gap}<source>{text}</source>"
        kind = draw.randint(0, 3)
        targets = (("", f"{gap}<target>{text}</target>"), ("<target/>", f"<target>{text}</target>"),
                   ('<target state="NEW"></target>', f'<target state="NEW">{text}</target>'),
                   ("<target>DONE</target>", "<target>DONE</target>"))[kind]  # fmt: skip
        source.append(f"{kept}{targets[0]}</trans-unit>")
        expected.append(f"{kept}{targets[1]}</trans-unit>")
    head = '<xliff version="1.2"><file target-language="DE"><body>\n'
    return tuple(head + "\n".join(units) + "</body></file></xliff>" for units in (source, expected))


def vtt_file(draw):
    end, blocks, time = draw.choice(("\n", "\r\n")), ["WEBVTT - A TITLE"], 0
    lines = (
        "{}", "- {}", "<v ROGER>{}", "<c.YELLOW>{}</c> {}", "<i>{}</i>", "{} <00:01.500>x",
        "♪ {} ♪", "{} &amp; a",
    )  # fmt: skip
    for number in range(draw.randint(1, 6)):
        if draw.random() < 0.2:
            blocks.append(draw.choice((f"NOTE A NOTE{end}MORE", "STYLE" + end + "::CUE { COLOR: RED }")))
        time += draw.choice((1, 1, 3))
        stamp = f"00:{time:02}.000 --> 00:{time + 1:02}.000" + draw.choice(("", " ALIGN:START"))
        content = [draw.choice(lines).format(phrase(draw), "dog") for _ in range(draw.choice((1, 1, 2)))]
        blocks.append(end.join([*([f"CUE {number}"] * draw.randint(0, 1)), stamp, *content]))
    text = draw.choice(("", "\ufeff")) + (end * 2).join(blocks) + end * draw.choice((0, 1, 2))
    return text, text


def markdown_file(draw):
    inline = (
        "**big**", "*a _b_ c*", "`code()`", '[a link](http://X.EXAMPLE/A_B "T")', "[ref][R]", "<https://Y.EXAMPLE/>",
        "![a picture](A.PNG)", r"\*", "&amp;", "~~no~~", "<b>b</b>", "x_y_z", "a  \nb", "3 < 4", "[sic]",
    )  # fmt: skip

    def text():
        return phrase(draw, inline)

    blocks = []
    for _ in range(draw.randint(1, 6)):
        kind = draw.randint(0, 8)
        if kind == 0:
            blocks.append(f"{'#' * draw.randint(1, 4)} {phrase(draw)}{draw.choice(('', ' #'))}")
        elif kind == 1:
            blocks.append(f"{phrase(draw)}\n---")
        elif kind == 2:
            blocks.append("\n".join(f"{draw.choice('-*')} {text()}" for _ in range(draw.randint(1, 3))))
        elif kind == 3:
            blocks.append(f"1. {text()}\n   {text()}\n2. {text()}")
        elif kind == 4:
            blocks.append(f"> {text()}\n> {text()}")
        elif kind == 5:
            blocks.append("```python\nX = 1\n```")
        elif kind == 6:
            cells = [phrase(draw, inline[:4]) for _ in range(4)]
            blocks.append(f"| {cells[0]} | {cells[1]} |\n|---|---|\n| {cells[2]} | {cells[3]} |")
        else:
            blocks.append("\n".join(text() for _ in range(draw.randint(1, 3))))
    front = draw.choice(("", "", "---\nTITLE: STAYS\n---\n"))
    whole = front + "\n\n".join([*blocks, "[R]: http://X.EXAMPLE\n"])
    whole = whole.replace("\n", draw.choice(("\n", "\r\n")))
    return whole, whole


def wrapped_file(draw):
    paragraphs = []
    for _ in range(draw.randint(1, 5)):
        start, hanging = draw.choice(
            (("", ""), ("", ""), ("  ", "  "), ("- ", "  "), ("> ", "> "), ("1. ", "   "))
        )
        words = " ".join(phrase(draw) for _ in range(draw.randint(1, 6)))
        words = re.split(" (?!kg)", words)  # a number stays with its unit
        lines, line = [], start
        for word in words:
            if len(line) + len(word) > 60:
                lines.append(line.rstrip(" "))
                line = hanging
            line += word + " "
        paragraphs.append("\n".join([*lines, line.rstrip(" ")]))
    text = "\n\n".join(paragraphs) + draw.choice(("", "\n"))
    text = text.replace("\n", draw.choice(("\n", "\r\n")))
    return text, text


FILES = {
    "json": json_file, "android": android_file, "po": po_file,
    "xliff": xliff_file, "vtt": vtt_file, "markdown": markdown_file, "wrapped": wrapped_file,
}  # fmt: skip


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("format", FILES)
def test_only_the_words_change(format, count):
    translator = upper_case_translator(split_sentences=False)
    for seed in range(count):
        source, expected = FILES[format](random.Random(seed))
        pieces = parse(source, format, ("en", "de"), f"seed {seed}")
        out = "".join(part.written for part in translate_pieces(translator, pieces))
        assert capitals(out) == capitals(expected), f"seed {seed}"
