"""The encoding that a page is in: what its first bytes and its declaration say, as browsers go by them."""

import codecs
import re
from dataclasses import dataclass

from transformer_mt.errors import InputError

_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_DECLARED = re.compile(
    rb"<meta\b[^>]*?charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml\b[^>]*?encoding\s*=\s*[\"']([\w.:-]+)",
    re.IGNORECASE,
)
_SEARCHED = 1024  # bytes in which browsers look for a declaration
# What browsers take these for.
_ALIASES = {
    **dict.fromkeys(("iso-8859-1", "iso8859-1", "latin1", "latin-1", "l1", "us-ascii", "ascii"), "cp1252"),
    **dict.fromkeys(("gb2312", "gbk", "gb_2312-80", "x-gbk"), "gb18030"),
    **dict.fromkeys(("shift-jis", "shift_jis", "sjis", "x-sjis"), "cp932"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "korean"), "cp949"),
    **dict.fromkeys(("utf-16", "utf-16le", "utf-16be"), "utf-8"),  # such a page could not declare it in ASCII
}


@dataclass(frozen=True)
class Encoding:
    """How a page is read and written."""

    name: str
    is_ascii: bool = False
    """Whether translations are written in ASCII, as the declaration is of another encoding than the page."""


def decode_page(raw: bytes, location: str) -> tuple[str, Encoding]:
    """The text of a page, and its encoding. InputError if it is neither what it declares nor UTF-8."""
    mark = next((mark for mark in _BYTE_ORDER_MARKS if raw.startswith(mark)), None)
    declared = _declared(raw)
    if mark is None and declared not in (None, "utf-8"):
        try:
            return raw.decode("utf-8"), Encoding("utf-8", is_ascii=True)
        except UnicodeDecodeError:
            pass
    name = _BYTE_ORDER_MARKS[mark] if mark else declared or "utf-8"
    try:
        return raw.decode(name), Encoding(name)
    except LookupError:
        raise InputError(
            f"{location}: must declare an encoding that this program knows, but declares {name}"
        ) from None
    except UnicodeDecodeError as error:
        if name == "cp1252":  # a few bytes stand for control characters
            return raw.decode("latin-1"), Encoding("latin-1")
        line, byte = raw.count(b"\n", 0, error.start) + 1, raw[error.start]
        raise InputError(
            f"{location}:{line}: must be {name.upper()}, but byte {byte:#04x} is not; convert the file "
            "(iconv) "
            "first, or declare its encoding"
        ) from None


def _declared(raw: bytes) -> str | None:
    found = _DECLARED.search(raw[:_SEARCHED])
    if found is None:
        return None
    name = (found[1] or found[2]).decode("ascii", "replace").lower()
    name = _ALIASES.get(name, name)
    return "utf-8" if name in ("utf8", "utf-8", "unicode-1-1-utf-8") else name
