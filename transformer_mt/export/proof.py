"""Whether an exported model translates as the run does: both translate a probe set, and their outputs are
compared.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from transformer_mt.config import Config
from transformer_mt.data.held_out import read_set
from transformer_mt.data.lines import read_lines
from transformer_mt.data.spaceless import is_spaceless
from transformer_mt.data.tokenizer import EOS, Tokenizer
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.evaluation.metrics import corpus_scores
from transformer_mt.progress_bar import show_progress
from transformer_mt.translation.translator import Translator

_PROBES = 200
_IDENTICAL = 0.995  # of the lines, in float32
_SCORES = 1e-3  # between the scores of identical lines, in float32
_BLEU = 95.0  # of a quantised model's output against ours


@dataclass(frozen=True)
class Proof:
    """What the comparison found."""

    quantization: str
    sentences: int
    identical: int
    """Lines that both translate alike."""
    largest_difference: float
    """Between the scores of such lines."""
    bleu: float
    """Of the exported model's output against ours."""

    def __str__(self) -> str:
        return (
            f"{self.quantization}: {self.identical} of {self.sentences} probe sentences translated "
            f"identically, scores within {self.largest_difference:.1e}, BLEU against the run's own output "
            f"{self.bleu:.2f}"
        )


def probe_sentences(
    run: Path, config: Config, tokenizer: Tokenizer, file: str | None, say: Callable[[str], None]
) -> list[str]:
    """Sentences of the file, else of the validation set, else of test sets the run was scored on, else of
    random pieces.
    """
    if file:
        sentences = [line for line in islice(read_lines(file), _PROBES) if line.strip()]
        if not sentences:
            raise InputError(f"{file}: must hold sentences, but is empty")
        return sentences
    try:
        return [src for src, _ in islice(read_set(config.data.valid, config.data, run, "valid"), _PROBES)]
    except InputError as error:
        for scored in sorted((run / "evaluation").glob("*.jsonl")):
            say(f"{error}; the probe is made of the sources in {scored} instead")
            return [json.loads(line)["source"] for line in islice(read_lines(scored), _PROBES)]
        say(f"{error}; the probe is made of random pieces instead; a file of sentences gives a better one")
    draw = random.Random(0)
    first, last = EOS + 1, tokenizer.src.vocab_size() - 1
    lines = [[draw.randint(first, last) for _ in range(draw.randint(2, 15))] for _ in range(_PROBES)]
    return [text for ids in lines if (text := " ".join(tokenizer.src.decode(ids).split()))]


def prove(
    ours: Translator, theirs: Translator, sentences: Sequence[str], quantization: str, target_lang: str
) -> Proof:
    """Compare the two; WorkError if they differ by more than they may."""
    expected, found = (
        list(show_progress(translator.stream(sentences), "proof", len(sentences), unit="sentences"))
        for translator in (ours, theirs)
    )
    alike = [(a, b) for a, b in zip(expected, found) if a.translation == b.translation]
    difference = max((abs(a.score - b.score) for a, b in alike), default=0.0)
    texts = [result.translation for result in expected]
    tokenize = "char" if is_spaceless(target_lang) else "13a"  # sacreBLEU's word splitters are extras
    (score,) = corpus_scores(
        [result.translation for result in found], texts, target_lang, tokenize, metrics=("BLEU",)
    )
    # SacreBLEU's is 0 where no line has four words
    bleu = 100.0 if len(alike) == len(sentences) else score.value
    proof = Proof(quantization, len(sentences), len(alike), difference, bleu)
    if quantization == "float32":
        if len(alike) < _IDENTICAL * len(sentences) or difference > _SCORES:
            raise WorkError(
                f"the export must translate {_IDENTICAL:.1%} of the lines identically with scores within "
                f"{_SCORES}, but: {proof}; it was not kept"
            )
    elif bleu < _BLEU:
        raise WorkError(
            f"the export must have a BLEU of {_BLEU:.0f} against the run's own output, but: {proof}; it was ",
            "not kept, give sentences like those it will translate with ",
            Setting("probe"),
            ", or another ",
            Setting("quantization"),
        )
    return proof
