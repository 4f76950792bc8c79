"""The format of a file, by the ending of its name: lines of text, or a document that a companion reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from transformer_mt.companion import shown
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.messages import say_once
from transformer_mt.parts import load_part, names_of
from transformer_mt.text.languages import TWO_LETTERS, base_code

_OF_LINES = frozenset({"", ".txt", ".text", ".src", ".trg", ".tgt", ".ref", ".hyp", ".in", ".out", ".tok"})
"""Endings of text whose lines are translated, apart from codes of languages and numbers."""
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


@dataclass(frozen=True)
class DocumentFormats:
    """Formats that a companion reads for `translate -i`."""

    endings: Mapping[str, str]
    """The format of each ending: {".srt": "srt"}."""
    translate: str
    """`module:function(request, format)`; the request is a TranslateRequest (cli/translate.py)."""
    more: Sequence[str] = ()
    """Formats without an ending of their own."""
    archives: frozenset[str] = frozenset()
    """Formats of several files in one, so the output must have the input's ending."""
    advice: Mapping[str, str] = field(default_factory=dict)
    """Advice for endings that are not read."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.more, *dict.fromkeys(self.endings.values()))


def brought_formats() -> list[DocumentFormats]:
    """The formats of documents that companions read."""
    known = []
    for name in names_of("document_format")[1]:
        try:
            formats = load_part("document_format", name)
        except WorkError as error:
            say_once(f"note: {error}")
            continue
        if isinstance(formats, DocumentFormats):
            known.append(formats)
        else:
            say_once(f"note: the document format {name} must be a DocumentFormats, but is {shown(formats)}")
    return known


def format_of(
    formats: Sequence[DocumentFormats], input_name: str | None, output_name: str | None, may_set: bool = True
) -> str:
    """`text` or the name of a format, by the name of the input, or of the output if the input has no name.
    InputError for an ending that none of the `formats` reads; with `may_set`, the error also suggests setting
    the format to `text`.
    """
    endings = {ending: name for each in formats for ending, name in each.endings.items()}
    advice = {ending: text for each in formats for ending, text in each.advice.items()}
    path = PurePath(input_name or output_name or "")
    ending, output_ending = _ending(path), _ending(PurePath(output_name or ""))
    if input_name and (ending in advice or not (ending in endings or _is_of_lines(ending))):
        known = f" or end in {', '.join(endings)}" if endings else ""
        what_to_do = advice.get(ending, "convert it to one of these" if endings else "no companion reads it")
        other = ", or set ", Setting("format", "text"), " to translate each line as it is"
        raise InputError(
            f"{path}: must be a text file (.txt){known}, but ends in {ending}; {what_to_do}",
            *(other if may_set else ()),
        )
    format = endings.get(ending, "text")
    if output_ending in endings and format != endings[output_ending]:
        raise InputError(
            f"{output_name}: must not end in {output_ending}, because the input is no {output_ending} "
            "document; give the output another name, or set ", Setting("format", format),
        )  # fmt: skip
    if any(format in each.archives for each in formats) and output_ending in (*advice, ".txt"):
        raise InputError(f"{output_name}: must end in .{format}, as the input does; give it another name")
    return format


def _is_of_lines(ending: str) -> bool:
    """True for the ending of a text file, also a language code (newstest.de) or the number of a part."""
    return ending in _OF_LINES or ending[1:].isdigit() or base_code(ending[1:]) in TWO_LETTERS


def _ending(path: PurePath) -> str:
    return (path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path).suffix.lower()
