"""The vocabulary, learnt of evenly spaced rows."""

from itertools import chain, compress, repeat
from typing import Any

import numpy as np

from transformer_mt.config import Config
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.data.cleaning.drop_reasons import KEPT, REASONS
from transformer_mt.data.preparation.clean import Clean
from transformer_mt.data.preparation.reasons import Reasons
from transformer_mt.data.preparation.row_tables import text_bytes, text_columns
from transformer_mt.data.preparation.split import TextBlocks
from transformer_mt.data.preparation.store import Store
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.messages import say
from transformer_mt.text.pair import Pair
from transformer_mt.text.sentences import has_several_sentences

ROWS = 500_000
"""More change the pieces little and take long."""

_SENTENCES = 20_000  # enough to estimate the share of sources with several sentences


class Sample:
    """The stage that samples rows which no rule has dropped, at a fixed stride and at most ROWS in all."""

    what = "sampling"

    def __init__(self, clean: Clean, text: TextBlocks, reasons: Reasons, store: Store) -> None:
        self._clean, self._text, self._reasons, self._store = clean, text, reasons, store
        self.sizes = text.sizes
        self._before = np.cumsum([0, *clean.num_keys()])
        self._stride = 1
        while -(-self._before[-1] // self._stride) > ROWS:
            self._stride *= 2

    def result(self, number: int) -> str:
        return f"sample/{number:05d}.arrow"

    def run(self, number: int) -> None:
        kept = REASONS.index(KEPT)
        rows = np.flatnonzero(self._clean.reasons(number) == kept)
        rows = rows[-self._before[number] % self._stride :: self._stride]
        pairs, is_kept = self._text.pairs(number), self._reasons.of(number) == kept
        src, tgt = ([pairs[row][side] for row in rows.tolist()] for side in (0, 1))
        columns = {"src": src, "tgt": tgt, "is_kept": is_kept[rows].tolist()}
        self._store.write(self.result(number), text_bytes(columns))

    def blocks(self) -> "Sampled":
        """The corpus of each block and its columns: src, tgt, and is_kept, whether a pair is trained on."""
        numbers = range(len(self._text))
        return [(self._text.entry(n), text_columns(self._store.read(self.result(n)))) for n in numbers]


Sampled = list[tuple[Corpus, dict[str, list[Any]]]]


def learnt_tokenizer(config: Config, sampled: Sampled) -> Tokenizer:
    """The vocabulary of the sampled pairs that are trained on."""
    data = config.data
    names = ", ".join(entry.title for entry in data.entries)
    say(f"learning {config.tokenizer.vocab_size:,} {config.tokenizer.kind} tokens from {names}")
    learnt_from = list[Pair]()
    for entry, columns in sampled:
        once = config.tokenizer.shared and entry.is_text  # both sides of plain text are the same
        tgt = repeat("") if once else columns["tgt"]
        learnt_from += compress(zip(columns["src"], tgt), columns["is_kept"])
    if not learnt_from:
        raise InputError(f"{names}: no training pair is left after cleaning; all are empty or held out")
    return Tokenizer.train(learnt_from, config.tokenizer, data.control_pieces)


def several_sentences(config: Config, sampled: Sampled) -> float:
    """The share of the sampled sources with more than one sentence."""
    data = config.data
    blocks = [columns["src"] for entry, columns in sampled if not (data.directions and entry.is_text)]
    sources = list(chain.from_iterable(blocks))
    sources = sources[:: -(-len(sources) // _SENTENCES) or 1]
    return sum(has_several_sentences(src, data.source_lang) for src in sources) / max(1, len(sources))
