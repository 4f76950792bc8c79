"""The formats of documents, by the endings of their names."""

from pathlib import PurePath

from transformer_mt.errors import InputError, Setting

_ENDINGS = {".html": "html", ".htm": "html", ".srt": "srt"}
_NOT_READ = {
    ".vtt": "convert the subtitles to .srt",
    ".xhtml": "save the page as .html",
    ".csv": "save the column of sentences as a text file",
    ".tsv": "save the column of sentences as a text file",
    **dict.fromkeys(
        (".json", ".jsonl", ".po", ".tmx", ".xlf", ".xliff", ".xml"), "save its sentences as a text file"
    ),
}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


def format_of(input_name: str | None, output_name: str | None) -> str:
    """text, html or srt: by the input's name, or by the output's where the input has no name. InputError for
    a format in which not all is text to translate, and which is not read.
    """
    path = PurePath(input_name or output_name or "")
    ending = (path.with_suffix("") if path.suffix in _COMPRESSED else path).suffix.lower()
    if input_name and (advice := _NOT_READ.get(ending)):
        raise InputError(
            f"{path}: must be a text file, .html or .srt, but ends in {ending}; {advice}, or set ",
            Setting("format", "text"),
            " to translate each line as it is",
        )
    return _ENDINGS.get(ending, "text")
