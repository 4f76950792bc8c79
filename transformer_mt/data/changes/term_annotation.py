"""`data.terms`: training sources with the translations of terms in them, other ones in each epoch.

What a row gets is a function of the seed, the epoch and the row. Letters: R rows.
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from transformer_mt.config import Config
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.data.batches.batch import Rows, Sides
from transformer_mt.data.batches.encoded_pairs import EncodedPairs
from transformer_mt.data.changes.change import ChangeOfSome, uniforms
from transformer_mt.data.vocabulary.term_pieces import PieceTerm, PieceWords, TermPieces, pieces_of_span
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.terms.glossary import Glossary, read_glossary, stems_of

_CHOSEN, _DETAILS = 2_000, 2_001
"""Numbers of the random streams of a row; smaller ones are those of the other changes."""


class TermAnnotation(ChangeOfSome):
    """Writes terms into sources. A row stays as it is where it has none, or would be over-long."""

    def __init__(
        self,
        before: Rows,
        config: Config,
        parts: Sequence[tuple[int, Corpus]],
        tokenizer: Tokenizer,
        links: EncodedPairs | None,
    ) -> None:
        """`parts` are pairs of a corpus each, in order; `links` are needed without a glossary."""
        super().__init__(before)
        pieces = TermPieces.of(tokenizer)
        if pieces is None or not tokenizer.shared:
            raise InputError("data.terms.share must be 0 with two vocabularies, one for each side")
        data = config.data
        self._pieces, self._share = pieces, data.terms.share
        if data.terms.file is not None:
            glossary = read_glossary(data.terms.file, data.languages)
            self._terms: GlossaryTerms | AlignedTerms = GlossaryTerms(glossary, tokenizer)
        else:
            assert links is not None
            self._terms = AlignedTerms(self.pairs, links, tokenizer, data.target_lang)
        self._seed, self._most = config.seed, data.max_length
        has_terms = [
            entry.objective == "translation"
            and (data.terms.file is None or data.languages_of(entry) == data.languages)
            for _, entry in parts
        ]
        self._has_terms, self._ends = np.array(has_terms), np.cumsum([size for size, _ in parts])

    def chosen(self, epoch: int, rows: np.ndarray) -> np.ndarray:
        is_chosen = uniforms(self._seed, epoch, rows, _CHOSEN) < self._share
        return is_chosen & self._has_terms[np.searchsorted(self._ends, rows, "right")]

    def change(self, epoch: int, rows: np.ndarray, sides: Sides) -> None:
        src, tgt = sides
        for i, row in enumerate(rows.tolist()):
            rng = np.random.default_rng([self._seed, epoch, row, _DETAILS])
            terms = self._terms.of_row(row, src[i], tgt[i], rng)
            whole = self._pieces.inserted(src[i].tolist(), terms)
            if terms and len(whole) < self._most:
                src[i] = np.array(whole, np.int32)


class GlossaryTerms:
    """The terms of a glossary that both sides of a pair hold."""

    def __init__(self, glossary: Glossary, tokenizer: Tokenizer) -> None:
        self._glossary, self._tokenizer = glossary, tokenizer
        self._control = {*tokenizer.control_ids.values()}

    def of_row(self, row: int, src: np.ndarray, tgt: np.ndarray, rng: np.random.Generator) -> list[PieceTerm]:
        """The terms of a pair of piece ids."""
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
        terms: list[PieceTerm] = []
        for match in matches:
            begin, end = pieces_of_span(spans, match.begin, match.end)
            if begin < end and (not terms or first + begin >= terms[-1][1]):
                pieces = self._tokenizer.encode_src([match.targets[0]], num_threads=1)[0]
                terms.append((first + begin, first + end, pieces))
        return terms


_MOST_TERMS, _MOST_WORDS = 3, 3
"""Terms of a sentence, and source words of a term."""
_SAMPLE = 20_000
"""Rows whose words are counted."""
_BYTE = re.compile(r"<0x[0-9a-f]{2}>")
_FREQUENT = 1e-3
"""A word with a larger share of all words is no term by itself."""
_OTHER_FORM = 0.5
"""How often the translation of a one-word term stands in another inflected form."""


class AlignedTerms:
    """Words and short phrases of a pair with their translations, as its links say."""

    def __init__(
        self, pairs: EncodedPairs, links: EncodedPairs, tokenizer: Tokenizer, target_lang: str
    ) -> None:
        """`links` are the source and the target positions that belong together, of each of the pairs."""
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

    def of_row(self, row: int, src: np.ndarray, tgt: np.ndarray, rng: np.random.Generator) -> list[PieceTerm]:
        """Up to three terms of a pair of piece ids; none of a pair whose text was changed."""
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
