"""The vocabulary, learnt of evenly spaced rows."""

import numpy as np

from transformer_mt.config import Config
from transformer_mt.data.cleaning.drop_reasons import KEPT, REASONS
from transformer_mt.data.preparation.clean import Clean
from transformer_mt.data.preparation.reasons import Reasons
from transformer_mt.data.preparation.split import TextBlocks
from transformer_mt.data.preparation.store import Store
from transformer_mt.data.preparation.tables import text_bytes, text_columns
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.messages import say
from transformer_mt.text.pair import Pair
from transformer_mt.text.sentences import has_several_sentences

ROWS = 500_000
"""More change the pieces little and take long."""

_SENTENCES = 20_000  # enough to say which share of the sources has several


class Sample:
    """The stage that takes every so many-th of the rows that no rule has dropped, at most ROWS in all."""

    what = "sampling"

    def __init__(self, clean: Clean, text: TextBlocks, reasons: Reasons, store: Store) -> None:
        self._clean, self._text, self._reasons, self._store = clean, text, reasons, store
        self.sizes = text.sizes
        self._before = np.cumsum([0, *(clean.num_keys(block) for block in range(len(text)))])
        self._stride = 1
        while -(-self._before[-1] // self._stride) > ROWS:
            self._stride *= 2

    def result(self, number: int) -> str:
        return f"sample/{number:05d}.arrow"

    def run(self, number: int) -> None:
        kept = REASONS.index(KEPT)
        rows = np.flatnonzero(self._clean.arrays(number)["reasons"] == kept)
        rows = rows[-self._before[number] % self._stride :: self._stride]
        pairs = self._text.pairs(number, rows.tolist())
        columns = {
            "src": [src for src, _ in pairs],
            "tgt": [tgt for _, tgt in pairs],
            "is_kept": (self._reasons.of(number)[rows] == kept).tolist(),
        }
        self._store.write(self.result(number), text_bytes(columns))

    def pairs(self, block: int) -> list[tuple[Pair, bool]]:
        """The pairs of a block, and whether each is trained on."""
        columns = text_columns(self._store.read(self.result(block)))
        return list(zip(zip(columns["src"], columns["tgt"]), columns["is_kept"]))


def learnt_tokenizer(config: Config, sample: Sample, text: TextBlocks) -> Tokenizer:
    """The vocabulary of the sampled pairs that are trained on."""
    data = config.data
    once = config.tokenizer.shared  # both sides of plain text are the same
    names = ", ".join(entry.title for entry in data.entries)
    say(f"learning {config.tokenizer.vocab_size:,} {config.tokenizer.kind} tokens from {names}")
    learnt_from = [
        (pair[0], "") if once and text.entry(block).is_text else pair
        for block in range(len(text))
        for pair, is_kept in sample.pairs(block)
        if is_kept
    ]
    if not learnt_from:
        raise InputError(f"{names}: no training pair is left after cleaning; all are empty or held out")
    return Tokenizer.train(learnt_from, config.tokenizer, data.control_pieces)


def several_sentences(config: Config, sample: Sample, text: TextBlocks) -> float:
    """The share of the sampled sources with more than one sentence."""
    data = config.data
    blocks = [n for n in range(len(text)) if not (data.directions and text.entry(n).is_text)]
    sources = [src for block in blocks for (src, _), _ in sample.pairs(block)]
    sources = sources[:: -(-len(sources) // _SENTENCES) or 1]
    return sum(has_several_sentences(src, data.source_lang) for src in sources) / max(1, len(sources))
