"""The texts of a document translated, with their markup."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from transformer_mt.companions.documents.formats import DOCUMENT_FORMATS
from transformer_mt.companions.documents.markdown_text import parse_markdown
from transformer_mt.companions.documents.markup.html import parse_html
from transformer_mt.companions.documents.markup.marked_text import BREAK, MarkedText, Piece, flat
from transformer_mt.companions.documents.placement import place
from transformer_mt.companions.documents.strings.android_strings import parse_android
from transformer_mt.companions.documents.strings.gettext import parse_po
from transformer_mt.companions.documents.strings.json_texts import parse_json
from transformer_mt.companions.documents.strings.xliff import parse_xliff
from transformer_mt.companions.documents.subtitles import parse_srt, parse_vtt
from transformer_mt.companions.documents.wrapped import parse_wrapped
from transformer_mt.errors import InputError
from transformer_mt.text.languages import LETTER
from transformer_mt.text.sentences import find_words
from transformer_mt.translation.result import Candidate, Options, Translation
from transformer_mt.translator import ChunkSize, Translator

_FLAGS = re.compile(r"^\(\?([aiLmsux]+)\)")


@dataclass(frozen=True)
class DocumentPart:
    """A part of a translated document: a text, with what stands before it in the document."""

    written: str
    problems: list[str] = field(default_factory=list)
    """Sentences about the text's translation."""
    results: list[Translation] = field(default_factory=list)
    """The translations of the text, and of those within its markup."""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The texts with their translations."""
        texts = [one for one in self.results if "unchanged" not in one.flags and one.translation.strip()]
        return [(one.source, one.translation) for one in texts]


def parse(
    text: str,
    format: str,
    languages: tuple[str, str],
    name: str,
    attributes: bool = True,
    is_ascii: bool = False,
) -> list[Piece]:
    """Split a document into pieces: markup, and texts to translate. `format` is any except those of office
    documents; InputError if the document is not in it. `languages` are the source and target of the
    translation. For `attributes` and `is_ascii`, which apply to HTML, see parse_html.
    """
    source_lang, target_lang = languages
    match format:
        case "text":
            return [MarkedText(part) if part.strip() else part for part in re.split(r"(\r?\n)", text) if part]
        case "html":
            return parse_html(text, source_lang, attributes, is_ascii)
        case "srt":
            return parse_srt(text, target_lang, name)
        case "vtt":
            return parse_vtt(text, target_lang, name)
        case "markdown":
            return parse_markdown(text)
        case "wrapped":
            return parse_wrapped(text)
        case "po":
            return parse_po(text, target_lang, name)
        case "xliff":
            return parse_xliff(text, target_lang, name)
        case "json":
            return parse_json(text, target_lang, name)
        case "android":
            return parse_android(text, target_lang, name)
    known = ", ".join(DOCUMENT_FORMATS.names)
    raise InputError(f"the format must be one of {known}, but is {format}")


def translate_pieces(
    translator: Translator,
    pieces: Sequence[Piece],
    tag: str | None = None,
    protect: str | None = None,
    done: int = 0,
    retry: bool = False,
) -> Iterator[DocumentPart]:
    """Yield the parts of the translated document in order: one for each text, then the markup after the last
    text. The first `done` parts are left out.
    """
    texts = [piece for piece in pieces if isinstance(piece, MarkedText)]
    markup = _markup_before(pieces)
    repeated = _RepeatedTexts(texts[done:])
    size, start = ChunkSize(), done
    while start < len(texts):
        chunk = texts[start : start + size.next()]
        parts = all_texts(chunk)
        patterns = [pattern_of(text, protect) for text in parts]
        options = Options(align=True, tag=tag, protect=patterns, retry=retry)
        results = repeated.results(parts, translator, options)
        for i, text in enumerate(chunk, start=start):
            of_text = list(islice(results, 1 + len(text.inner)))
            written, unplaced = write(text, [result.n_best[0] for result in of_text])
            if text.text.strip() and not of_text[0].translation.strip():
                lost = [f"the text was lost: its translation is empty: {text.text!r}"]
                yield DocumentPart(markup[i] + written, lost, of_text)
                continue
            unplaced += _lost_parts(text, of_text[0])
            problems = [problem for result in of_text for problem in [*result.problems, *warnings_of(result)]]
            yield DocumentPart(markup[i] + written, [*problems, *unplaced], of_text)
        start += len(chunk)
    if done <= len(texts):
        yield DocumentPart(markup[-1])


class _RepeatedTexts:
    """Translates a text that occurs again, with the same code in it, only once."""

    def __init__(self, texts: Sequence[MarkedText]) -> None:
        """`texts` are those that are still to come."""
        self._left = Counter(map(key_of, all_texts(texts)))
        self._known: dict[_Key, Translation] = {}

    def results(
        self, parts: Sequence[MarkedText], translator: Translator, options: Options
    ) -> Iterator[Translation]:
        """The results of the parts, in order."""
        keys = list(map(key_of, parts))
        first = {key: i for i, key in reversed(list(enumerate(keys))) if key not in self._known}
        numbers = sorted(first.values())
        translations = translator.stream([parts[i].text for i in numbers], options.of_lines(numbers))
        for key in keys:
            result = self._known.pop(key, None) or next(translations)
            self._left[key] -= 1
            if self._left[key]:  # memory is freed with the last one
                self._known[key] = result
            yield result


_Key = tuple[str, tuple[str, ...]]


def key_of(text: MarkedText) -> _Key:
    """The parts of a text that its translation depends on."""
    return text.text, tuple(text.literals())


def all_texts(texts: Sequence[MarkedText]) -> list[MarkedText]:
    """The texts, each followed by those within its markup."""
    return [part for text in texts for part in (text, *text.inner)]


def write(text: MarkedText, candidates: Sequence[Candidate]) -> tuple[str, list[str]]:
    """A translation with the markup of its text, and a sentence for each mark that could not be placed. The
    first candidate translates the text itself, the others the texts within its markup.
    """
    placed = [place(part, candidate) for part, candidate in zip((text, *text.inner), candidates, strict=True)]
    problems = [
        f"{mark.opening or mark.verbatim} is not around the right words: the alignment does not find them"
        for one in placed
        for mark in one.unplaced
    ]
    return placed[0].text.render([one.text.render() for one in placed[1:]]), problems


def _lost_parts(text: MarkedText, result: Translation) -> list[str]:
    """A sentence if a translation has too few words for its parts, such as the subtitles of a sentence."""
    parts = 1 + sum(mark.opening == BREAK for mark in flat(text.marks))
    if parts == 1 or len(find_words(result.translation)) >= parts:
        return []
    return [f"a subtitle has no text: {result.translation!r} is split into {parts}"]


_LOST = {"missing_number": "a number", "missing_url": "an address"}


def warnings_of(result: Translation) -> Iterator[str]:
    """A sentence for each kind of text, such as a number, that the translation lacks."""
    for flag, what in _LOST.items():
        if flag in result.flags:
            yield f"{what} of the source is not in the translation: {result.source[:60]!r}"


def pattern_of(text: MarkedText, protect: str | None = None) -> str | None:
    """The pattern of text that must stay in the translation: literal text, and what `protect` matches; None
    if there is neither.
    """
    literals = sorted(set(text.literals()), key=lambda literal: (-len(literal), literal))
    patterns = []
    if literals:
        # A literal `a` must not match inside a word. All share one check, as the set of letters is large.
        letter, any_literal = LETTER.pattern, "|".join(map(re.escape, literals))
        patterns = [f"(?<!{letter})(?:{any_literal})(?!{letter})"]
    expressions = []
    if protect:  # flags may stand only at the beginning of a pattern, or apply to a group
        flags = _FLAGS.match(protect)
        expressions = [f"(?{flags[1]}:{protect[flags.end() :]})" if flags else f"(?:{protect})"]
    return "|".join([*patterns, *expressions]) or None


def _markup_before(pieces: Sequence[Piece]) -> list[str]:
    """The markup before each text, then the markup after the last one."""
    befores = [""]
    for piece in pieces:
        if isinstance(piece, str):
            befores[-1] += piece
        else:
            befores.append("")
    return befores
