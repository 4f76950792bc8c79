"""The encoding of catalogues and subtitles, whose programs wrote others than UTF-8 for long."""

import re

from transformer_mt.companions.documents.markup.html_encoding import Encoding
from transformer_mt.errors import InputError
from transformer_mt.messages import say
from transformer_mt.text.languages import base_code

_CHARSET = re.compile(rb"charset=([\w.:-]+)")
_WINDOWS = {
    code: page
    for page, codes in {
        "cp1250": "pl cs sk hu sl hr bs ro sq", "cp1251": "ru uk be bg mk sr", "cp1253": "el",
        "cp1254": "tr az", "cp1255": "he yi", "cp1256": "ar fa ur", "cp1257": "lt lv et", "cp1258": "vi",
    }.items()
    for code in codes.split()
}  # fmt: skip
"""The pages of Windows for languages; those of Western Europe have cp1252."""


def decode_text(raw: bytes, format: str, language: str, name: str) -> tuple[str, Encoding]:
    """The text of a file, and the encoding that its translation has: UTF-8, the header of a catalogue may
    declare another one for the text. Subtitles that are not in UTF-8 are read as Windows wrote them in the
    language, with a note. InputError if it is none of these.
    """
    declared = _CHARSET.search(raw, 0, 10_000) if format == "po" else None
    charset = declared[1].decode() if declared and declared[1] != b"CHARSET" else "utf-8"
    try:
        return raw.decode(charset), Encoding("utf-8")
    except (UnicodeDecodeError, LookupError) as error:
        if format == "srt":
            page = _WINDOWS.get(base_code(language), "cp1252")
            say(f"note: {name}: is not UTF-8, and is read as windows-{page[2:]}; the translation is UTF-8")
            return raw.decode(page, "replace"), Encoding("utf-8")
        start = getattr(error, "start", 0)
        line, byte = raw.count(b"\n", 0, start) + 1, raw[start]
        raise InputError(
            f"{name}:{line}: must be {charset.upper()}, but byte {byte:#04x} is not; convert the file "
            "(iconv) first"
        ) from None
