"""`data.changes: [terms]`: writes translations of terms into training sources, different ones in each epoch.

The terms of a row are a function of the seed, the epoch and the row. Letters: R rows.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from transformer_mt.companions.terms.glossary import Glossary, read_glossary, stems_of
from transformer_mt.companions.terms.required_terms import (
    AS,
    TERM,
    TERM_END,
    TermTokens,
    TokenTerm,
    tokens_of_span,
)
from transformer_mt.config import Config
from transformer_mt.data.batches.batch import Rows, Sides
from transformer_mt.data.batches.encoded_pairs import EncodedPairs
from transformer_mt.data.changes.change import ChangeOfSome, uniforms
from transformer_mt.data.preparation.training_links import PieceWords
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.settings.objectives import objective_class
from transformer_mt.settings.section import Location, Section
from transformer_mt.text.lines import Pair

_SHOWN = 5
"""The most terms that `inspect` names."""
_CHOSEN, _DETAILS = 2_000, 2_001
"""Numbers of the random streams of a row. Other changes use smaller numbers."""


class TermAnnotation(ChangeOfSome):
    """Writes terms into sources (Dinu et al. 2019). A row stays as it is if it has none, or would be too
    long.
    """

    class Settings(Section):
        """Terms of a glossary in training sources, so that the model learns to obey glossaries."""

        share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
        """Share of the pairs to change in each epoch."""
        file: Location[str | None] = Field(None)
        """A glossary (TSV, CSV, TBX): terms that occur on both sides are used. If omitted, words and short
        phrases of the pairs are used, aligned by eflomal (extra `alignment`); the model then learns to obey
        any glossary.
        """

    def __init__(self, before: Rows, config: Config, tokenizer: Tokenizer, settings: Settings) -> None:
        super().__init__(before)
        tokens = TermTokens.of(tokenizer)
        if tokens is None or not tokenizer.shared:
            raise InputError(
                "leave `terms` out of data.changes: source and target have separate vocabularies"
            )
        data = config.data
        self._tokens, self._share = tokens, settings.share
        if settings.file is not None:
            glossary = read_glossary(settings.file, data.languages)
            self._terms: GlossaryTerms | AlignedTerms = GlossaryTerms(glossary, tokenizer)
        else:
            assert self.links is not None  # needs_links
            self._terms = AlignedTerms(self.pairs, self.links, tokenizer, data.target_lang)
        self._seed, self._most = config.seed, data.max_length
        has_terms = [
            objective_class(corpus.objective).translates
            and (settings.file is None or data.languages_of(corpus) == data.languages)
            for _, corpus in self.corpora
        ]
        self._has_terms = np.array(has_terms)
        self._ends = np.cumsum([size for size, _ in self.corpora])

    @classmethod
    def control_tokens(cls, settings: Any = None) -> Sequence[str]:
        return TERM, AS, TERM_END

    @classmethod
    def needs_links(cls, settings: Any = None) -> bool:
        return settings.file is None

    @classmethod
    def conflicts(cls, config: Config, settings: Any = None) -> Iterator[str]:
        if not (config.tokenizer.shared or config.init_from):
            yield "tokenizer.shared must be true with data.changes: terms, but is false"
        if not config.data.directions:
            yield "leave `terms` out of data.changes: no training corpus has translations"

    @classmethod
    def check(cls, config: Config, settings: Any = None) -> None:
        if settings.file is not None:
            read_glossary(settings.file, config.data.languages)

    @classmethod
    def inspection(cls, config: Config, settings: Any = None) -> "TermsReport | None":
        if settings.file is None:
            return None
        return TermsReport(read_glossary(settings.file, config.data.languages), settings.file)

    def chosen(self, epoch: int, rows: np.ndarray) -> np.ndarray:
        is_chosen = uniforms(self._seed, epoch, rows, _CHOSEN) < self._share
        return is_chosen & self._has_terms[np.searchsorted(self._ends, rows, "right")]

    def change(self, epoch: int, rows: np.ndarray, sides: Sides) -> None:
        src, tgt = sides
        for i, row in enumerate(rows.tolist()):
            rng = np.random.default_rng([self._seed, epoch, row, _DETAILS])
            terms = self._terms.of_row(row, src[i], tgt[i], rng)
            whole = self._tokens.inserted(src[i].tolist(), terms)
            if terms and len(whole) < self._most:
                src[i] = np.array(whole, np.int32)


class GlossaryTerms:
    """The terms of a glossary that both sides of a pair hold."""

    def __init__(self, glossary: Glossary, tokenizer: Tokenizer) -> None:
        self._glossary, self._tokenizer = glossary, tokenizer
        self._control = {*tokenizer.control_ids.values()}

    def of_row(self, row: int, src: np.ndarray, tgt: np.ndarray, rng: np.random.Generator) -> list[TokenTerm]:
        """The terms of a pair of token ids."""
        source, target = (
            side.decode([i for i in ids.tolist() if i not in self._control])
            for side, ids in ((self._tokenizer.src, src), (self._tokenizer.tgt, tgt))
        )
        matches = self._glossary.in_both(source, target)
        if not matches:
            return []
        ids, spans = self._tokenizer.spans_src(source)
        first = len(src) - len(ids)  # number of control tokens before the text
        if ids != src[first:].tolist():
            return []  # the row has another segmentation
        terms: list[TokenTerm] = []
        for match in matches:
            begin, end = tokens_of_span(spans, match.begin, match.end)
            if begin < end and (not terms or first + begin >= terms[-1][1]):
                pieces = self._tokenizer.encode_src([match.targets[0]], num_threads=1)[0]
                terms.append((first + begin, first + end, pieces))
        return terms


_MOST_TERMS, _MOST_WORDS = 3, 3
"""Maximum number of terms in a sentence, and of source words in a term."""
_SAMPLE = 20_000
"""Rows whose words are counted."""
_BYTE = re.compile(r"<0x[0-9a-f]{2}>")
_FREQUENT = 1e-3
"""A word that makes up a larger share of all words does not begin or end a term."""
_OTHER_FORM = 0.5
"""Share of one-word translations that are replaced by a random one of their inflected forms."""


class AlignedTerms:
    """Words and short phrases of a pair with their translations, as its links say."""

    def __init__(
        self, pairs: EncodedPairs, links: EncodedPairs, tokenizer: Tokenizer, target_lang: str
    ) -> None:
        """`links` holds the aligned source and target positions of each pair."""
        self._pairs, self._links = pairs, links
        self._tokenizer, self._words = tokenizer, PieceWords(tokenizer.src)
        self._stems = stems_of(target_lang)
        counts: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        for row in range(0, len(pairs), max(1, len(pairs) // _SAMPLE)):
            for side, ids in enumerate((pairs.src(row), pairs.tgt(row))):
                counts[side].update(self._words.words(ids, self._words.word_of(ids)))
        total = max(1, counts[0].total())
        self._frequent = {word for word, count in counts[0].items() if count > _FREQUENT * total}
        self._forms: dict[str, list[str]] = {}
        for word in sorted(counts[1]):
            if _BYTE.search(word):  # bytes of a letter that the vocabulary lacks
                continue
            self._forms.setdefault(self._stems(word), []).append(word)

    def of_row(self, row: int, src: np.ndarray, tgt: np.ndarray, rng: np.random.Generator) -> list[TokenTerm]:
        """Up to three terms of a pair of token ids. An empty list if the text was changed before."""
        links = np.stack([self._links.src(row), self._links.tgt(row)], axis=1)
        if not (
            len(links)
            and np.array_equal(src, self._pairs.src(row))
            and np.array_equal(tgt, self._pairs.tgt(row))
        ):
            return []
        words_of = [self._words.word_of(ids) for ids in (src, tgt)]
        of_words = np.unique(np.stack([words_of[0][links[:, 0]], words_of[1][links[:, 1]]], axis=1), axis=0)
        words = [self._words.words(ids, of) for ids, of in zip((src, tgt), words_of)]
        wanted = 1 + int(rng.integers(_MOST_TERMS))
        terms: list[tuple[int, int, list[int]]] = []
        for first in rng.permutation(len(words[0])).tolist():
            last = first + int(rng.integers(_MOST_WORDS))
            phrase = self._phrase(of_words, words, first, last)
            if phrase is None:
                phrase = self._phrase(of_words, words, first, last := first)
            if phrase is None:
                continue
            begin, end = _pieces(words_of[0], first, last)
            if all(end <= other or begin >= stop for other, stop, _ in terms):
                target = tgt[slice(*_pieces(words_of[1], *phrase))].tolist()
                terms.append((begin, end, self._other_form(words[1], phrase, target, rng)))
            if len(terms) == wanted:
                break
        return sorted(terms)

    def _phrase(
        self, links: np.ndarray, words: Sequence[Sequence[str]], first: int, last: int
    ) -> tuple[int, int] | None:
        """The first and last target word aligned to a source phrase. None if either phrase also has
        links outside the other (Koehn et al. 2003), or if it is not a term.
        """
        phrase = words[0][first : last + 1]
        if len(phrase) <= last - first or not all(_is_word(word) for word in phrase):
            return None
        if {phrase[0], phrase[-1]} & self._frequent:
            return None
        inside = links[(links[:, 0] >= first) & (links[:, 0] <= last)]
        if not len(inside) or len(np.unique(inside[:, 0])) < len(phrase):
            return None
        begin, end = int(inside[:, 1].min()), int(inside[:, 1].max())
        back = links[(links[:, 1] >= begin) & (links[:, 1] <= end)]
        if (back[:, 0] < first).any() or (back[:, 0] > last).any() or end - begin > _MOST_WORDS:
            return None
        return (begin, end) if all(_is_word(word) for word in words[1][begin : end + 1]) else None

    def _other_form(
        self, words: Sequence[str], phrase: tuple[int, int], target: list[int], rng: np.random.Generator
    ) -> list[int]:
        """The term's translation or, for single words, often another of its inflected forms: so the
        model learns to inflect the words of a glossary.
        """
        if phrase[0] != phrase[1] or rng.random() >= _OTHER_FORM:
            return target
        forms = self._forms.get(self._stems(words[phrase[0]]), [])
        if len(forms) < 2:
            return target
        written = self._tokenizer.tgt.decode(target)
        form = forms[int(rng.integers(len(forms)))]
        form = form.capitalize() if written[:1].isupper() else form
        return self._tokenizer.encode_src([form], num_threads=1)[0]


def _pieces(word_of: np.ndarray, first: int, last: int) -> tuple[int, int]:
    at = np.flatnonzero((word_of >= first) & (word_of <= last))
    return int(at[0]), int(at[-1]) + 1


def _is_word(text: str) -> bool:
    return any(map(str.isalpha, text))


class TermsReport:
    """Counts the terms in the pairs of all training corpora of their direction, for `inspect`."""

    def __init__(self, glossary: Glossary, file: str) -> None:
        self._glossary, self._file = glossary, file
        self._in_sources: Counter[str] = Counter()
        self._in_both: Counter[str] = Counter()
        self._pairs = self._pairs_with_terms = 0

    def add(self, row: int, pair: Pair) -> None:
        self._pairs += 1
        both = self._glossary.in_both(*pair)
        self._pairs_with_terms += bool(both)
        self._in_both.update({match.source for match in both})
        self._in_sources.update({match.source for match in self._glossary.find(pair[0])})

    def notes(self) -> list[str]:
        """Sentences about the glossary."""
        terms = [term.source for term in self._glossary.terms]
        nowhere = [term for term in terms if not self._in_sources[term]]
        one_side = [term for term in terms if self._in_sources[term] and not self._in_both[term]]
        sentences = [
            f"{self._file}: {len(terms):,} terms; {self._pairs_with_terms:,} of {self._pairs:,} "
            "sampled training pairs have a term on both sides."
        ]
        for what, which in (
            ("are in no source", nowhere),
            ("are in sources, but their translations are in no target", one_side),
        ):
            if which:
                shown = ", ".join(which[:_SHOWN]) + (" ..." if len(which) > _SHOWN else "")
                sentences.append(f"{len(which):,} terms {what}: {shown}.")
        return sentences
