"""Glossaries: reading them from files, finding their terms in a text, and stemming words."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

from transformer_mt.corpora.file import text_rows
from transformer_mt.corpora.tmx import forget, refuse_entities
from transformer_mt.errors import InputError
from transformer_mt.text.languages import base_code, casefolded, hyphenated
from transformer_mt.text.lines import read_lines
from transformer_mt.text.sentences import find_words

_STEMMERS = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek",
    "eo": "esperanto", "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian",
    "fi": "finnish", "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian",
    "id": "indonesian", "it": "italian", "lt": "lithuanian", "nb": "norwegian", "ne": "nepali",
    "nl": "dutch", "nn": "norwegian", "no": "norwegian", "pl": "polish", "pt": "portuguese",
    "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish", "ta": "tamil", "tr": "turkish",
    "yi": "yiddish",
}  # fmt: skip
_LONGEST = 60
"""A longer word is its own stem: stemmers would take long."""
_MOST_KNOWN = 1_000_000
"""Maximum number of cached stems: a server reads texts without end."""


@lru_cache(maxsize=16)
def stems_of(language: str) -> "Stems":
    """The stems of a language. They are cached as they are computed."""
    return Stems(language)


class Stems:
    """Stems words with Snowball (Porter 2001). In languages that are not in `_STEMMERS`, words are only
    lower-cased, and English words made singular.
    """

    def __init__(self, language: str) -> None:
        import snowballstemmer

        self._language = language
        self._is_english = base_code(language) == "en"
        name = _STEMMERS.get(base_code(language))
        self._stemmer = snowballstemmer.stemmer(name) if name in snowballstemmer.algorithms() else None
        self._known: dict[str, str] = {}
        self._lock = Lock()

    def __call__(self, word: str) -> str:
        if (stem := self._known.get(word)) is None:
            stem = casefolded(word, self._language).replace("’", "'")
            if self._is_english:
                stem = _singular(stem)
            if self._stemmer is not None and len(word) <= _LONGEST:
                with self._lock:  # a stemmer keeps the word it works on
                    stem = self._stemmer.stemWord(stem)
            if len(self._known) < _MOST_KNOWN:
                self._known[word] = stem
        return stem


_ENDINGS = (
    (re.compile(r"(?<=.)'s?$"), ""),
    (re.compile(r"(?<=[a-z]{2})ies$"), "y"),
    (re.compile(r"(?<=[a-z])(?:(?<=ss)|(?<=sh)|(?<=ch)|(?<=x)|(?<=z))es$"), ""),
    (re.compile(r"(?<=[a-z]{2})(?<![isu])s$"), ""),
)


def _singular(word: str) -> str:
    """Remove the possessive and plural endings of an English noun."""
    possessive, *plurals = _ENDINGS
    word = possessive[0].sub(possessive[1], word)
    for ending, instead in plurals:
        shorter = ending.sub(instead, word)
        if shorter != word:
            return shorter
    return word


@dataclass(frozen=True)
class Term:
    """A row of a glossary."""

    source: str
    targets: tuple[str, ...]
    """Its translations, the preferred one first. If there are none, the term stays as it is."""


@dataclass(frozen=True)
class Match:
    """A term in a text."""

    begin: int
    """Its first character."""
    end: int
    """The character after its last."""
    targets: tuple[str, ...]
    """How it may be translated there."""
    source: str
    """The term as the glossary has it."""


@dataclass(frozen=True)
class _Entry:
    term: Term
    words: list[str]
    stems: list[str]

    @property
    def is_name(self) -> bool:
        """True if the term is written in capitals, such as "IT" or "C". It is then found in this form only:
        "it" is another word.
        """
        return self.term.source.isupper()


class Glossary:
    """Terms of two languages. A term is found in any inflected form; the longest one wins."""

    def __init__(
        self, terms: Iterable[Term], languages: tuple[str, str], behind: "Glossary | None" = None
    ) -> None:
        """`languages` are the source and the target language. Terms with the same source are joined. The
        glossary `behind` is searched second: its terms are found where this one has none or a shorter one.
        """
        self.languages, self._behind = languages, behind
        self._stems = stems_of(languages[0]), stems_of(languages[1])
        joined: dict[str, list[str]] = {}
        for term in terms:
            joined.setdefault(term.source, []).extend(term.targets)
        self.terms = [Term(source, tuple(dict.fromkeys(targets))) for source, targets in joined.items()]
        self._by_first: dict[str, list[_Entry]] = {}
        for term in self.terms:
            words = self._words(term.source)
            if words:
                stems = [self._stems[0](word) for word in words]
                self._by_first.setdefault(stems[0], []).append(_Entry(term, words, stems))
        for entries in self._by_first.values():
            entries.sort(key=lambda entry: -len(entry.stems))

    def __len__(self) -> int:
        return len(self.terms)

    def find(self, text: str) -> list[Match]:
        """The terms of a source text, from left to right, without overlaps."""
        spans = find_words(text)
        words = [text[begin:end] for begin, end in spans]
        stems = [self._stems[0](word) for word in words]
        matches: list[Match] = []
        i = 0
        while i < len(words):
            if (entry := self._at(i, words, stems)) is None:
                i += 1
                continue
            last = i + len(entry.stems) - 1
            begin, end = spans[i][0], spans[last][1]
            term, words_as_written = entry.term, text[begin:end]
            stays = words_as_written if words_as_written.casefold() == term.source.casefold() else term.source
            matches.append(Match(begin, end, term.targets or (stays,), term.source))
            i = last + 1
        return matches

    def _at(self, i: int, words: Sequence[str], stems: Sequence[str]) -> _Entry | None:
        """The longest term that begins at word i. Among equally long ones, the one in exactly this form."""
        best: _Entry | None = None
        for entry in self._by_first.get(stems[i], ()):
            n = len(entry.stems)
            if best is not None and n < len(best.stems):
                break
            window = words[i : i + n]
            if entry.stems != stems[i : i + n] or (entry.is_name and window != entry.words):
                continue
            if window == entry.words:
                return self._longer(entry, i, words, stems)
            best = best or entry
        return self._longer(best, i, words, stems)

    def _longer(
        self, entry: _Entry | None, i: int, words: Sequence[str], stems: Sequence[str]
    ) -> _Entry | None:
        """The entry, or a longer one of the glossary that is searched second."""
        other = self._behind._at(i, words, stems) if self._behind else None
        return other if other and (entry is None or len(other.stems) > len(entry.stems)) else entry

    def is_rendered(self, match: Match, translation: str, exactly: bool = False) -> bool:
        """True if a translation has one of the targets of a match: in any inflected form or, if `exactly`, as
        the glossary has it. Case is ignored.
        """
        form = partial(casefolded, language=self.languages[1]) if exactly else self._stems[1]
        forms = [form(word) for word in self._words(translation)]
        return any(_holds(forms, [form(word) for word in self._words(target)]) for target in match.targets)

    def in_both(self, source: str, target: str) -> list[Match]:
        """The terms of a source text whose translation is in the target text. Each match has only the target
        that was found.
        """
        terms = []
        for match in self.find(source):
            for one in match.targets:
                alone = replace(match, targets=(one,))
                if self.is_rendered(alone, target):
                    terms.append(alone)
                    break
        return terms

    @staticmethod
    def _words(text: str) -> list[str]:
        return [text[begin:end] for begin, end in find_words(text)]


def _holds(words: Sequence[str], wanted: Sequence[str]) -> bool:
    n = len(wanted)
    return bool(n) and any(list(words[i : i + n]) == list(wanted) for i in range(len(words) - n + 1))


_CODE = re.compile(r"[a-z]{2,3}(?:[-_][a-z0-9]{2,4})*")
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_HEADERS = ({"source", "src", "source term"}, {"target", "tgt", "target term"})


def read_glossary(file: str | Path, languages: tuple[str, str]) -> Glossary:
    """The terms of a file: .tbx (TermBase eXchange), .csv (commas or semicolons), else one term per line,
    `source<tab>target`. A first row with the names of the languages, or `source` and `target`, says which
    columns to read. `a|b` allows two targets; a term with an empty target is not translated. InputError names
    what cannot be read.
    """
    path = Path(file)
    if path.suffix.lower() == ".tbx":
        terms = list(_of_tbx(path, languages))
    else:
        terms = list(_of_table(path, languages))
    if not terms:
        raise InputError(f"{path}: must have terms of {' and '.join(languages)}, but has none")
    return Glossary(terms, languages)


def _of_table(path: Path, languages: tuple[str, str]) -> Iterator[Term]:
    rows = _rows(path)
    columns, is_named = (0, 1), False
    for number, row in rows:
        if number == 1 and (named := _columns(row, languages)) is not None:
            columns, is_named = named, True
            continue
        has_no_source = len(row) <= columns[0] or not row[columns[0]].strip()
        if not any(cell.strip() for cell in row) or (has_no_source and is_named):
            continue
        if has_no_source or (len(row) <= columns[1] and not is_named):
            separator = "a comma or semicolon" if path.suffix.lower() == ".csv" else "a tab"
            raise InputError(
                f"{path}: each line must have a source term and a target term with {separator} between them, "
                f"but line {number} is {' '.join(row)[:60]!r}"
            )
        source, target = (_normal(row[k]) if k < len(row) else "" for k in columns)
        yield Term(source, tuple(filter(None, map(str.strip, target.split("|")))))


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    is_csv = path.suffix.lower() == ".csv"
    first = next(iter(read_lines(path)), "") if is_csv else ""
    rows = text_rows(str(path), ".csv" if is_csv else ".tsv", ";" if ";" in first else None)
    for number, row in rows:
        yield number, [re.sub(r"[ \t]*[\r\n]+[ \t]*", " ", cell) for cell in row]


def _columns(row: list[str], languages: tuple[str, str]) -> tuple[int, int] | None:
    """The source and target columns that a header row names; None if the row is no header."""
    names = [cell.strip().casefold() for cell in row]
    columns = []
    for language, usual in zip(languages, _HEADERS):
        code = hyphenated(language)
        exact = [i for i, name in enumerate(names) if hyphenated(name) == code or name in usual]
        close = [
            i for i, name in enumerate(names) if _CODE.fullmatch(name) and base_code(name) == base_code(code)
        ]
        columns.append(next(iter(exact + close), None))
    if columns[0] is None or columns[1] is None:
        return None
    return columns[0], columns[1]


def _normal(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()


def _of_tbx(path: Path, languages: tuple[str, str]) -> Iterator[Term]:
    from lxml import etree  # takes time to import

    try:
        with path.open("rb") as file:
            options = {"resolve_entities": False, "load_dtd": False, "no_network": True}
            for _, entry in etree.iterparse(file, tag=("{*}termEntry", "{*}conceptEntry"), **options):
                refuse_entities(entry.getroottree(), str(path))
                sources, targets = (_terms_of(entry, language) for language in languages)
                yield from (Term(source, tuple(targets)) for source in sources if targets)
                forget(entry)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; paths are relative to the current folder") from None
    except etree.XMLSyntaxError as error:
        raise InputError(f"{path}: must be TBX, but is no XML: {error}") from None


def _terms_of(entry: Any, language: str) -> list[str]:
    """The terms in the language: those with its exact code, else those of its variants."""
    terms: dict[bool, list[str]] = {True: [], False: []}
    for part in entry.iterfind("{*}langSet"), entry.iterfind("{*}langSec"):
        for language_section in part:
            code = language_section.get(_LANGUAGE, "")
            if base_code(code) == base_code(language):
                is_same = hyphenated(code) == hyphenated(language)
                texts = ("".join(term.xpath(".//text()")) for term in language_section.iter("{*}term"))
                terms[is_same] += [_normal(" ".join(text.split())) for text in texts if text.strip()]
    return terms[True] or terms[False]
