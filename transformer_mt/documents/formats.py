"""The formats of documents, and how file names say them."""

from pathlib import PurePath

_ENDINGS = {".html": "html", ".htm": "html", ".xhtml": "html", ".srt": "srt"}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


def format_of(*names: str | None) -> str:
    """The format of the first of these files whose ending says it; else text."""
    for name in filter(None, names):
        path = PurePath(name)
        ending = (path.with_suffix("") if path.suffix in _COMPRESSED else path).suffix.lower()
        if ending in _ENDINGS:
            return _ENDINGS[ending]
    return "text"
