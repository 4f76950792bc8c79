"""Repairs of text before it is cleaned, by the packages of the extra `clean`."""

import html
import importlib
import re
from collections.abc import Callable
from typing import Any

from transformer_mt.errors import InputError
from transformer_mt.text.languages import base_code, has_no_spaces, join_words

_ESCAPE = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|\w+);")
"""With its semicolon: `&copy=` is part of an address."""


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
        # Escaped twice (&amp;quot;), as the Moses scripts do with text that was escaped already.
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
            f"{name} must be installed for this data.filter, but is not; install the extra: "
            'pip install "transformer-mt[clean]"'
        ) from None
