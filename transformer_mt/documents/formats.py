"""The formats of documents, by the endings of their names."""

from pathlib import PurePath

from transformer_mt.errors import InputError, Setting
from transformer_mt.text.language_codes import TWO_LETTERS
from transformer_mt.text.languages import base_code

_ENDINGS = {
    **dict.fromkeys((".html", ".htm"), "html"),
    ".srt": "srt",
    ".vtt": "vtt",
    **dict.fromkeys((".md", ".markdown"), "markdown"),
    **dict.fromkeys((".po", ".pot"), "po"),
    **dict.fromkeys((".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".mxliff"), "xliff"),
    **dict.fromkeys((".json", ".arb"), "json"),
    ".xml": "android",
    **{f".{name}": name for name in ("docx", "pptx", "xlsx", "odt", "epub")},
}
OFFICE = frozenset({"docx", "pptx", "xlsx", "odt", "epub"})
"""Formats that are zip files, which a translation is written into as a whole."""
ENDINGS = ("txt", *(ending[1:] for ending in _ENDINGS))
"""The endings of files that are translated."""
FORMATS = ("text", "wrapped", *dict.fromkeys(_ENDINGS.values()))
"""All formats; the first two have no ending of their own."""
KEEP_SOURCES = frozenset({"po", "xliff"})
"""Formats in which translations stand next to their sources: what is translated is not translated again."""
WITH_ENCODING = frozenset({"html", "xliff", "android"})
"""Formats whose files may say that they are in another encoding than UTF-8."""
_NOT_READ = {
    ".xhtml": "save the page as .html",
    **dict.fromkeys((".doc", ".docm", ".rtf"), "save it as .docx, without macros"),
    **dict.fromkeys((".xls", ".xlsm", ".ods"), "save it as .xlsx, without macros"),
    **dict.fromkeys((".ppt", ".pptm", ".odp"), "save it as .pptx, without macros"),
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
_OF_LINES = frozenset({"", ".txt", ".text", ".src", ".trg", ".tgt", ".ref", ".hyp", ".in", ".out", ".tok"})
"""Endings of text whose lines are translated, apart from codes of languages and numbers."""
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


MOST_BYTES = 50_000_000
"""Bytes of a document's text at most: its pieces take up to ninety times as much memory."""


def check_size(count: int, name: str, most: int = MOST_BYTES, what: str = "text") -> None:
    """InputError if a text of `count` bytes is too large for a document."""
    if count > most:
        raise InputError(f"{name}: must have at most {most:,} bytes of {what}, but has {count:,}; split it")


def format_of(input_name: str | None, output_name: str | None, may_set: bool = True) -> str:
    """One of FORMATS: by the input's name, or by the output's where the input has no name. InputError for a
    format in which not all is text to translate, and which is not read; it advises another setting if there
    `may_set` be one.
    """
    path = PurePath(input_name or output_name or "")
    ending = _ending(path)
    is_known = ending in _ENDINGS or ending in _OF_LINES or _is_code(ending[1:])
    if input_name and (ending in _NOT_READ or not is_known):
        advice = _NOT_READ.get(ending, "convert it to one of these")
        known = ", ".join(_ENDINGS)
        other = ", or set ", Setting("format", "text"), " to translate each line as it is"
        raise InputError(
            f"{path}: must be a text file (.txt) or end in {known}, but ends in {ending}; {advice}",
            *(other if may_set else ()),
        )
    format, output_ending = _ENDINGS.get(ending, "text"), _ending(PurePath(output_name or ""))
    written = _ENDINGS.get(output_ending, "text")
    if output_ending in _ENDINGS and format != written:
        raise InputError(
            f"{output_name}: must not end in {output_ending}, because the input is no {output_ending} "
            "document; give the output another name, or set ", Setting("format", format),
        )  # fmt: skip
    if format in OFFICE and output_ending in (*_NOT_READ, ".txt"):
        raise InputError(f"{output_name}: must end in .{format}, as the input does; give it another name")
    return format


def _is_code(ending: str) -> bool:
    """True for the code of a language, as of newstest.de, and the number of a part."""
    return ending.isdigit() or base_code(ending) in TWO_LETTERS


def _ending(path: PurePath) -> str:
    return (path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path).suffix.lower()
