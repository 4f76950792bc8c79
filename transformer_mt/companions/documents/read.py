"""Read files of any format as documents: find their texts, and turn the translations back into bytes."""

import gc
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event

from transformer_mt.companions.documents.document_translation import parse
from transformer_mt.companions.documents.formats import MOST_BYTES, OFFICE, WITH_ENCODING, check_size
from transformer_mt.companions.documents.markup.marked_text import BYTE_ORDER_MARK, MarkedText, Piece, Stays
from transformer_mt.companions.documents.markup.tokens import Encoding, decode_page, stopped_by
from transformer_mt.companions.documents.office.documents import OfficeDocument
from transformer_mt.companions.documents.office.package import turned
from transformer_mt.errors import InputError
from transformer_mt.messages import say
from transformer_mt.text.languages import base_code
from transformer_mt.text.lines import refuse_binary

_CHARSET = re.compile(rb"charset=([\w.:-]+)")
_WINDOWS = {
    code: page
    for page, codes in {
        "cp1250": "pl cs sk hu sl hr bs ro sq", "cp1251": "ru uk be bg mk sr", "cp1253": "el",
        "cp1254": "tr az", "cp1255": "he yi", "cp1256": "ar fa ur", "cp1257": "lt lv et", "cp1258": "vi",
    }.items()
    for code in codes.split()
}  # fmt: skip
"""The Windows code page of each language; languages that are not listed (Western Europe) use cp1252."""


def decode_text(raw: bytes, format: str, language: str, name: str) -> tuple[str, Encoding]:
    """The text of a file, and the encoding of its translation, which is always UTF-8. The file must be in
    UTF-8, or for a catalogue in the encoding that its header declares. Subtitles that are not in UTF-8 are
    read in the Windows code page of the language, with a note. InputError for other files.
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


@dataclass(frozen=True)
class Document:
    """A file in pieces."""

    pieces: list[Piece]
    encoding: str = "utf-8"
    office: OfficeDocument | None = None
    """The zip file that the pieces are put into; None for formats that are not zip files."""
    texts: Sequence[MarkedText] = field(init=False)
    """The pieces that are translated."""

    def __post_init__(self) -> None:
        texts = [piece for piece in self.pieces if isinstance(piece, MarkedText)]
        object.__setattr__(self, "texts", texts)

    @property
    def stay(self) -> Counter[str]:
        """Number of parts of each kind whose text is not translated."""
        return Counter(piece.what for piece in self.pieces if isinstance(piece, Stays))

    @property
    def remarks(self) -> list[str]:
        """Sentences about what is not translated."""
        if not self.texts:
            return ["there is no text to translate"]
        stay = ", ".join(f"{count:,} {what}" for what, count in self.stay.items())
        left_out = self.office.remarks if self.office else []
        return [f"not translated: {stay}", *left_out] if stay else left_out

    def encoded(self, text: str) -> bytes:
        """A part of the translated document, in the file's encoding."""
        return text.encode(self.encoding, "xmlcharrefreplace")  # HTML may lack characters

    def written(self, text: str) -> bytes:
        """The whole translated file; `text` is what all pieces became."""
        return self.encoded(text) if self.office is None else self.office.written(text)


def read_document(
    raw: bytes,
    format: str,
    languages: tuple[str, str],
    name: str,
    attributes: bool = True,
    most_bytes: int = MOST_BYTES,
    stop: Event | None = None,
) -> Document:
    """Read a file of a document format, such as `html`. InputError if the file is not of this format, or has
    more than `most_bytes` of text. `languages` are the source and target of the translation; for `attributes`
    see parse_html. Another thread may set `stop`, which raises StoppedError here.
    """
    with _without_collector(), stopped_by(stop):
        return _read(raw, format, languages, name, attributes, most_bytes)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Turn off garbage collection. The pieces of a document are many small objects that are kept, and looking
    for cycles among them takes a third of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read(
    raw: bytes, format: str, languages: tuple[str, str], name: str, attributes: bool, most_bytes: int
) -> Document:
    if format in OFFICE:
        office = OfficeDocument.read(raw, format, languages, name, attributes)
        return Document(office.pieces(most_bytes), office=office)
    check_size(len(raw), name, most_bytes)
    is_utf_16 = raw.startswith((b"\xff\xfe", b"\xfe\xff"))
    if not is_utf_16 or format in ("text", "wrapped"):
        refuse_binary([raw[:1000]], 1, name)
    if format in WITH_ENCODING or is_utf_16:
        text, declared = decode_page(raw, name)
    else:
        text, declared = decode_text(raw, format, languages[0], name)
    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    pieces = parse(text.removeprefix(mark), format, languages, name, attributes, declared.is_ascii)
    if format == "html":
        pieces = [
            turned(piece, format, *languages)
            if isinstance(piece, str) and "<html" in piece.lower()
            else piece
            for piece in pieces
        ]
    is_changed = format == "po" and is_utf_16  # gettext does not read UTF-16
    return Document([mark * (not is_changed), *pieces], "utf-8" if is_changed else declared.name)
