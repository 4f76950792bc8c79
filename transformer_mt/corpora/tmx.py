"""Sentence pairs in TMX files (Translation Memory eXchange 1.4), read unit by unit in flat memory."""

import html
from collections.abc import Iterator
from typing import Any

from transformer_mt.errors import InputError
from transformer_mt.messages import say_once
from transformer_mt.text.languages import base_code, hyphenated
from transformer_mt.text.lines import DAMAGED, open_bytes

# Inline elements whose content is formatting code of the original document, not text.
_CODES = {"bpt", "ept", "it", "ph", "ut"}
_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


def read_tmx(path: str, languages: list[str]) -> Iterator[tuple[str, str]]:
    """(source, target) of each unit that has both languages, formatting codes left out.

    A unit's language matches if it is the same (`de-AT` and `de_at`), or differs only in script or country
    (`deu` and `de-AT`). A note reports the number of units that lack one of the languages.
    InputError if the XML is damaged or defines entities, or if no unit has both languages.
    """
    from lxml import etree

    seen: dict[str, None] = {}
    units_read = pairs = 0
    with open_bytes(path) as file:
        # No entities, no DTD, no network: a corpus must not read other files or grow without bound.
        units = etree.iterparse(
            file, events=("start", "end"), resolve_entities=False, load_dtd=False, no_network=True
        )
        try:
            for event, element in units:
                if event == "start":
                    if element.getparent() is None:
                        refuse_entities(element.getroottree(), path)
                    continue
                if _name(element) != "tu":
                    continue
                texts = _texts(element)
                units_read += 1
                pair = _of_languages(texts, languages)
                forget(element)
                if pair is not None:
                    pairs += 1
                    yield pair
                else:
                    seen |= dict.fromkeys(texts)
        except etree.XMLSyntaxError as error:
            raise InputError(f"{path}: must be a TMX file, but its XML is damaged: {error.msg}") from None
        except DAMAGED as error:
            raise InputError(f"{path}: cannot be read: {error}") from None
    codes = ", ".join(list(seen)[:10]) or "no text"
    if not pairs:
        raise InputError(
            f"{path}: must have units in {languages[0]} and {languages[1]}, but has {codes}; set `columns`"
        )
    if pairs < units_read:
        say_once(
            f"note: {path}: {units_read - pairs:,} of {units_read:,} units are not in {languages[0]} and "
            f"{languages[1]}, but in {codes}"
        )


def _name(element: Any) -> str:
    """The element's name without its namespace, which some programs write."""
    return str(element.tag).rpartition("}")[2]


def _texts(unit: Any) -> dict[str, str]:
    """The text of the unit in each language, the first one where there are several."""
    texts: dict[str, str] = {}
    for variant in unit.iterfind("{*}tuv"):
        segment = variant.find("{*}seg")
        language = variant.get(_LANG) or variant.get("lang") or ""
        if segment is not None:
            texts.setdefault(language, " ".join("".join(_pieces(segment)).split()))
    return texts


def _pieces(element: Any) -> Iterator[str]:
    """The text inside an element, without formatting codes."""
    yield element.text or ""
    from lxml import etree

    for child in element:
        if child.tag is etree.Entity:  # from a DTD, which is not read: use HTML's
            yield html.unescape(child.text)
        elif isinstance(child.tag, str):  # a comment's tag is a function
            if _name(child) not in _CODES:
                yield from _pieces(child)
            elif child.get("type") in ("lb", "pb") or "<br" in "".join(child.itertext()):
                yield " "
        yield child.tail or ""


def _of_languages(texts: dict[str, str], languages: list[str]) -> tuple[str, str] | None:
    """The texts in two languages. Each language is found by its exact code, else by another code of the same
    language (en for en-US). None if one is missing.
    """
    codes = {hyphenated(code): text for code, text in texts.items()}
    wanted = [hyphenated(language) for language in languages]
    code_of = {code: code for code in wanted if code in codes}
    for code in wanted:
        if code not in code_of:
            left = (other for other in codes if other not in code_of.values())
            alike = next((other for other in left if base_code(other) == base_code(code)), None)
            if alike is None:
                return None
            code_of[code] = alike
    return codes[code_of[wanted[0]]], codes[code_of[wanted[1]]]


def refuse_entities(tree: Any, path: str) -> None:
    """InputError for a document that defines entities: they would be left out of its text, or expand without
    end.
    """
    dtd = tree.docinfo.internalDTD
    if dtd is not None and any(True for _ in dtd.iterentities()):
        raise InputError(f"{path}: must not define XML entities, but does; write the characters themselves")


def forget(unit: Any) -> None:
    """Free the unit and all units before it; otherwise the tree would grow with the file."""
    unit.clear(keep_tail=False)
    while unit.getprevious() is not None:
        del unit.getparent()[0]
