"""The formats of documents, by the endings of their names."""

from transformer_mt.errors import InputError
from transformer_mt.text.file_formats import DocumentFormats

_ENDINGS = {
    **dict.fromkeys((".html", ".htm"), "html"),
    ".srt": "srt",
    ".vtt": "vtt",
    **dict.fromkeys((".md", ".markdown"), "markdown"),
    **dict.fromkeys((".po", ".pot"), "po"),
    **dict.fromkeys((".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".mxliff"), "xliff"),
    **dict.fromkeys((".json", ".arb"), "json"),
    ".xml": "android",
    **{f".{name}": name for name in ("docx", "pptx", "xlsx", "odt", "odp", "epub")},
}
OFFICE = frozenset({"docx", "pptx", "xlsx", "odt", "odp", "epub"})
"""Formats that are zip files: a translation is written only when it is complete."""
ENDINGS = ("txt", *(ending[1:] for ending in _ENDINGS))
"""The endings of files that are translated."""
KEEP_SOURCES = frozenset({"po", "xliff"})
"""Formats in which translations stand next to their sources: what is translated is not translated again."""
WITH_ENCODING = frozenset({"html", "xliff", "android"})
"""Formats whose files may say that they are in another encoding than UTF-8."""
_NOT_READ = {
    ".xhtml": "save the page as .html",
    **dict.fromkeys((".doc", ".docm", ".rtf"), "save it as .docx, without macros"),
    **dict.fromkeys((".xls", ".xlsm", ".ods"), "save it as .xlsx, without macros"),
    **dict.fromkeys((".ppt", ".pptm"), "save it as .pptx, without macros"),
    ".pdf": "convert it to .docx",
    **dict.fromkeys((".xcstrings", ".stringsdict"), "export the texts as .xliff"),
    ".ts": "convert it to .po, with ts2po of translate-toolkit",
    **dict.fromkeys((".ini", ".php", ".dtd"), "convert it to .po, with the converters of translate-toolkit"),
    **dict.fromkeys((".tex", ".rst", ".adoc", ".docbook"), "convert it to .md, with pandoc"),
    ".strings": "convert it to .po, with prop2po of translate-toolkit",
    **dict.fromkeys((".yaml", ".yml"), "convert it to .po, with yaml2po of translate-toolkit"),
    **dict.fromkeys((".properties", ".resx"), "convert it to .json or .po"),
    **dict.fromkeys((".ass", ".ssa", ".ttml", ".dfxp", ".sbv", ".sub", ".lrc"), "save it as .srt or .vtt"),
    **dict.fromkeys((".svg", ".ipynb"), "save its texts as a text file"),
    **dict.fromkeys((".csv", ".tsv", ".jsonl", ".tmx"), "save the column of sentences as a text file"),
}

MOST_BYTES = 50_000_000
"""Maximum size of a document's text in bytes. Its pieces take up to ninety times as much memory."""


def check_size(count: int, name: str, most: int = MOST_BYTES, what: str = "text") -> None:
    """InputError if a text of `count` bytes is too large for a document."""
    if count > most:
        raise InputError(f"{name}: must have at most {most:,} bytes of {what}, but has {count:,}; split it")


DOCUMENT_FORMATS = DocumentFormats(
    endings=_ENDINGS,
    translate="transformer_mt.companions.documents.translate_file:translate",
    more=["wrapped"],
    archives=OFFICE,
    advice=_NOT_READ,
)
