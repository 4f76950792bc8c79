"""The direction of writing of a translated document, as each format has it.

A translation from a language that is written from the left into one that is written from the right, or back,
turns the paragraphs, tables and pages of the document.
"""

import re
from collections.abc import Callable

from transformer_mt.text.languages import is_right_to_left

_P_AFTER_BIDI = (
    "adjustRightInd|snapToGrid|spacing|ind|contextualSpacing|mirrorIndents|suppressOverlap|jc|textDirection|"
    "textAlignment|textboxTightWrap|outlineLvl|divId|cnfStyle|rPr|sectPr|pPrChange"
)
_R_AFTER_RTL = "cs|em|lang|eastAsianLayout|specVanish|oMath|rPrChange"
"""Elements that the schema puts after w:bidi in the properties of a paragraph, and after w:rtl in a run's."""


def turned(xml: str, format: str, source: str, target: str) -> str:
    """A part of a document, or a page, in the direction of the target language."""
    to_right, from_right = is_right_to_left(target), is_right_to_left(source)
    if to_right == from_right:
        return xml
    turn: Callable[[str, bool], str] = {
        "docx": _word, "pptx": _slides, "xlsx": _sheet, "odt": _odf, "odp": _odf, "epub": _page,
        "html": _page,
    }[format]  # fmt: skip
    return turn(xml, to_right)


def _word(xml: str, to_right: bool) -> str:
    xml = re.sub(r"<w:(?:bidi|rtl|bidiVisual)(?:\s[^<>]*)?/>", "", xml)
    if not to_right:
        return xml
    # Each paragraph, run, table and section gets properties, which a missing one is given.
    xml = re.sub(r"(<w:p(?:\s[^<>]*)?(?<!/)>)(?!\s*<w:pPr[\s/>])", r"\1<w:pPr></w:pPr>", xml)
    xml = re.sub(r"(<w:r(?:\s[^<>]*)?(?<!/)>)(?!\s*<w:rPr[\s/>])", r"\1<w:rPr></w:rPr>", xml)
    xml = re.sub(r"<w:(pPr|rPr|tblPr|sectPr)((?:\s[^<>]*)?)/>", r"<w:\1\2></w:\1>", xml)
    xml = _with_child(xml, "pPr", "<w:bidi/>", _P_AFTER_BIDI)
    xml = _with_child(xml, "rPr", "<w:rtl/>", _R_AFTER_RTL)
    xml = re.sub(
        r"(<w:tblPr(?:\s[^<>]*)?(?<!/)>(?:\s*<w:(?:tblStyle|tblpPr|tblOverlap)(?:\s[^<>]*)?/>)*)",
        r"\1<w:bidiVisual/>",
        xml,
    )
    last = r"<w:(?:rtlGutter|docGrid|printerSettings)[\s/>]|</w:sectPr>"
    section = rf"(<w:sectPr(?:\s[^<>]*)?(?<!/)>.*?)({last})"
    return re.sub(section, r"\1<w:bidi/>\2", xml, flags=re.DOTALL)


def _with_child(xml: str, name: str, child: str, after: str) -> str:
    """Each element of properties with a child, before those that must stand after it."""
    pattern = re.compile(
        rf"(<w:{name}(?:\s[^<>]*)?(?<!/)>)((?:(?!</?w:{name}[\s>]).)*?)(<w:(?:{after})[\s/>]|</w:{name}>)",
        re.DOTALL,
    )
    return pattern.sub(rf"\1\2{child}\3", xml)


def _slides(xml: str, to_right: bool) -> str:
    def properties(match: re.Match[str]) -> str:
        attributes = re.sub(r'\srtl="\w+"', "", match[2])
        if match[1] == "a:pPr":
            start, end = ("l", "r") if to_right else ("r", "l")
            attributes = re.sub(rf'(\salgn=)"{start}"', rf'\1"{end}"', attributes)
        return f'<{match[1]}{attributes} rtl="{int(to_right)}"'

    xml = re.sub(r"(<a:p(?:\s[^<>]*)?(?<!/)>)(?!\s*<a:pPr[\s/>])", r"\1<a:pPr/>", xml)
    return re.sub(r"<(a:pPr|a:tblPr|a:lvl\dpPr)((?:\s[\w:]+=\"[^\"]*\")*)", properties, xml)


def _sheet(xml: str, to_right: bool) -> str:
    xml = re.sub(r'(<(?:\w+:)?sheetView\b[^<>]*?)\srightToLeft="\w+"', r"\1", xml)
    if not to_right:
        return xml
    if re.search(r"<(?:\w+:)?sheetView[\s/>]", xml):
        return re.sub(r"(<(?:\w+:)?sheetView)(?=[\s/>])", r'\1 rightToLeft="1"', xml)
    views = '<sheetViews><sheetView rightToLeft="1" workbookViewId="0"/></sheetViews>'
    before = r"<(?:sheetPr|dimension)(?:\s[^<>]*)?(?:/>|>.*?</(?:sheetPr|dimension)>)"
    first = rf"(<worksheet(?:\s[^<>]*)?>(?:\s*{before})*)"
    return re.sub(first, rf"\1{views}", xml, count=1, flags=re.DOTALL)


def _odf(xml: str, to_right: bool) -> str:
    mode = f'style:writing-mode="{"rl-tb" if to_right else "lr-tb"}"'
    xml = re.sub(r'\sstyle:writing-mode="[\w-]+"', "", xml)
    properties = r"<style:(?:paragraph|page-layout|table|section|graphic)-properties"
    xml = re.sub(rf"({properties})(?=[\s/>])", rf"\1 {mode}", xml)
    start, end = ("left", "right") if to_right else ("right", "left")
    return re.sub(rf'\sfo:text-align="{start}"', f' fo:text-align="{end}"', xml)


def _page(xml: str, to_right: bool) -> str:
    direction = "rtl" if to_right else "ltr"
    tag = re.compile(r"<html((?:\s[^<>]*?)?)(/?>)", re.IGNORECASE)
    xml = tag.sub(lambda match: f'<html{_without(match[1], "dir")} dir="{direction}"{match[2]}', xml, count=1)
    spine = re.compile(r"<((?:\w+:)?spine)((?:\s[^<>]*?)?)(/?>)")
    return spine.sub(
        lambda match: (
            f"<{match[1]}{_without(match[2], 'page-progression-direction')} "
            f'page-progression-direction="{direction}"{match[3]}'
        ),
        xml,
        count=1,
    )


def _without(attributes: str, name: str) -> str:
    return re.sub(rf"\s{name}\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'>]+)", "", attributes, flags=re.IGNORECASE)
