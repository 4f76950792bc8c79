"""The formats of documents, by the endings of their names."""

from pathlib import PurePath

_ENDINGS = {".html": "html", ".htm": "html", ".srt": "srt"}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


def format_of(input_name: str | None, output_name: str | None) -> str:
    """text, html or srt: by the input's name, or by the output's where the input has no name."""
    path = PurePath(input_name or output_name or "")
    ending = (path.with_suffix("") if path.suffix in _COMPRESSED else path).suffix.lower()
    return _ENDINGS.get(ending, "text")
