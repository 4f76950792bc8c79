"""Terms, and where a text has them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from transformer_mt.terms.stems import stems_of
from transformer_mt.text.languages import casefolded
from transformer_mt.text.sentences import find_words


@dataclass(frozen=True)
class Term:
    """A row of a glossary."""

    source: str
    targets: tuple[str, ...]
    """How it may be translated, the preferred way first; without any it stays as it is."""


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
        """True if it is written in capitals, as "IT" or "C": then "it" is another word."""
        return self.term.source.isupper()


class Glossary:
    """Terms of two languages. A term is found in any inflected form; the longest one wins."""

    def __init__(
        self, terms: Iterable[Term], languages: tuple[str, str], behind: "Glossary | None" = None
    ) -> None:
        """`languages` are those of the sources and of the targets. Terms of one source are joined. Where no
        term is found, those of the glossary `behind` it are.
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
        """The longest term that begins at word i; of equally long ones that in exactly this form."""
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
        """True if a translation has one of the targets of a match, in any inflected form or, `exactly`, as it
        stands; capitals do not count.
        """
        form = partial(casefolded, language=self.languages[1]) if exactly else self._stems[1]
        forms = [form(word) for word in self._words(translation)]
        return any(_holds(forms, [form(word) for word in self._words(target)]) for target in match.targets)

    def in_both(self, source: str, target: str) -> list[Match]:
        """The terms of a source text of which the target text has the translation, with that one alone."""
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
