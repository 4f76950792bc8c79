"""Signs that text was decoded wrongly or escaped."""

import re

# The replacement character, and control characters but for tab.
_CONTROL = re.compile("[\ufffd\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ESCAPE = re.compile(r"&(?:amp;)?(?:#\d{2,5}|#x[0-9a-fA-F]{2,4}|amp|quot|apos|lt|gt|nbsp);")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]{2,}")


def is_escaped(text: str) -> bool:
    """True if the text has HTML escapes (`&quot;`)."""
    return "&" in text and _ESCAPE.search(text) is not None


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
