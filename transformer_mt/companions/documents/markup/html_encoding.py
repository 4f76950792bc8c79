"""Find the encoding of a page from its byte-order mark and its declaration, by the rules of browsers."""

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
    **dict.fromkeys(("windows-874", "tis-620", "iso-8859-11"), "cp874"),
    **dict.fromkeys(("windows-949", "ks_c_5601-1989", "iso-ir-149"), "cp949"),
    **dict.fromkeys(("windows-31j", "ms_kanji"), "cp932"),
    **dict.fromkeys(("x-cp1252", "cp819", "windows-1252"), "cp1252"),
    "iso-8859-8-i": "iso8859-8",
    "x-mac-cyrillic": "mac-cyrillic",
    "macintosh": "mac-roman",
    **dict.fromkeys(("utf-16", "utf-16le", "utf-16be"), "utf-8"),  # such a page could not declare it in ASCII
}


_KNOWN = frozenset({
    "utf-8", "utf-16-le", "utf-16-be", "gb18030", "big5", "big5hkscs", "euc_jp", "iso2022_jp", "cp932",
    "cp949", "koi8-r", "koi8-u", "cp866", "cp874", "mac-roman", "mac-cyrillic",
    *(f"cp{n}" for n in range(1250, 1259)), *(f"iso8859-{n}" for n in range(2, 17) if n != 12),
})  # fmt: skip
"""The encodings that browsers know, by Python's names."""


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
            return raw.decode("utf-8"), Encoding("ascii" if raw.isascii() else "utf-8", is_ascii=True)
        except UnicodeDecodeError:
            pass
    name = _BYTE_ORDER_MARKS[mark] if mark else declared or "utf-8"
    if name not in _KNOWN:
        raise InputError(f"{location}: must declare an encoding that this program knows, but declares {name}")
    try:
        return raw.decode(name), Encoding("latin-1" if name == "cp1252" and _is_xml_in_latin_1(raw) else name)
    except UnicodeDecodeError as error:
        if name == "cp1252":  # a few bytes stand for control characters
            return raw.decode("latin-1"), Encoding("latin-1")
        line, byte = raw.count(b"\n", 0, error.start) + 1, raw[error.start]
        raise InputError(
            f"{location}:{line}: must be {name.upper()}, but byte {byte:#04x} is not; convert the file "
            "(iconv) first, or declare its encoding"
        ) from None


def _is_xml_in_latin_1(raw: bytes) -> bool:
    """True if XML declares ISO-8859-1, which browsers take for Windows-1252 but XML parsers do not."""
    declaration = _DECLARED.search(raw[:_SEARCHED])
    label = (declaration and declaration[2]) or b"windows-1252"
    return b"1252" not in label


def _declared(raw: bytes) -> str | None:
    """The encoding that the page declares, by Python's name where it is known."""
    declaration = _DECLARED.search(raw[:_SEARCHED])
    if declaration is None:
        return None
    label = (declaration[1] or declaration[2]).decode("ascii", "replace").lower()
    label = _ALIASES.get(label, label)
    try:
        return codecs.lookup(label).name
    except LookupError:
        return label
