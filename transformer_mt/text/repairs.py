"""Repairs of text before it is cleaned, by the packages of the extra `clean`."""

import html
import importlib
import re
from collections.abc import Callable
from typing import Any

from transformer_mt.errors import InputError
from transformer_mt.text.languages import base_code, has_no_spaces, join_words

# The replacement character, and control characters but for tab.
_CONTROL = re.compile("[\ufffd\x00-\x08\x0b-\x1f\x7f-\x9f]")
_HTML_ESCAPE = re.compile(r"&(?:amp;)?(?:#\d{2,5}|#x[0-9a-fA-F]{2,4}|amp|quot|apos|lt|gt|nbsp);")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]{2,}")


def is_escaped(text: str) -> bool:
    """True if the text has HTML escapes (`&quot;`)."""
    return "&" in text and _HTML_ESCAPE.search(text) is not None


def is_wrongly_decoded(text: str) -> bool:
    """True if the text has UTF-8 that was decoded as Windows-1252 (`fÃ¼r`), or control or replacement
    characters.
    """
    if _CONTROL.search(text):
        return True
    return not text.isascii() and any(_is_mojibake(run) for run in _NOT_ASCII.findall(text))


def _is_mojibake(run: str) -> bool:
    """True if the characters, encoded as Windows-1252, are UTF-8 for a common letter or mark. Rare letters do
    not count: an uppercase letter before a closing quote may be UTF-8 for one by chance.
    """
    for start in range(len(run) - 1):
        for length in (2, 3):
            try:
                character = run[start : start + length].encode("cp1252").decode("utf-8")
            except (UnicodeEncodeError, UnicodeDecodeError):
                continue
            if len(character) == 1 and _is_common(character):
                return True
    return False


def _is_common(character: str) -> bool:
    code = ord(character)
    # Latin, Greek and Cyrillic; punctuation; Chinese, Japanese, Korean
    return 0xA0 <= code < 0x180 or 0x370 <= code < 0x500 or 0x2000 <= code < 0x2100 or 0x3000 <= code < 0xD7B0


_ESCAPE = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|\w+);")
"""An HTML escape. Its semicolon is required, because `&copy=` is part of an address."""


def encoding_repair() -> Callable[[str], str]:
    """A function that fixes wrongly decoded characters and HTML escapes, by ftfy."""
    ftfy = _import("ftfy")

    def repair(text: str) -> str:
        if text.isascii() and "&" not in text and text.isprintable():
            return text
        fixed = ftfy.fix_text(
            text,
            unescape_html=True,
            uncurl_quotes=False,
            fix_latin_ligatures=False,
            fix_character_width=False,
            normalization=None,
        )
        # Unescape again: the Moses scripts also escape text that was escaped already (&amp;quot;).
        twice = _ESCAPE.sub(lambda match: html.unescape(match[0]), fixed)
        return " ".join(twice.split("\n"))

    return repair


def detokenizer(language: str) -> Callable[[str], str]:
    """A function that joins tokenised text, by sacremoses: `it &apos;s , here` becomes `it's, here`. In
    Chinese and Japanese it only removes spaces between their characters, as line breaks of subtitles leave
    them too.
    """
    if has_no_spaces(language):
        return join_words
    moses = _import("sacremoses").MosesDetokenizer(lang=base_code(language))

    def detokenize(text: str) -> str:
        joined = " ".join(text.split()).replace(" @-@ ", "-").replace(" @/@ ", "/")
        return str(moses.detokenize(joined.split()))

    return detokenize


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(
            f"{name}, which this data.filter needs, is not installed; install the extra: "
            'pip install "transformer-mt[clean]"'
        ) from None
