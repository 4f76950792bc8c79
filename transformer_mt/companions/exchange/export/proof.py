"""Proof that an export translates as the run does: its own runtime and ours translate a probe set, and
the outputs are compared.
"""

import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.companions.exchange.export.format import ExportFormat, Output
from transformer_mt.config import DataConfig
from transformer_mt.corpora.held_out import evenly_spaced, read_set
from transformer_mt.data.vocabulary.tokenizer import EOS, Tokenizer
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.evaluation.metrics import build_bleu
from transformer_mt.evaluation.scoring import Pair, score
from transformer_mt.messages import say, show_progress
from transformer_mt.processes import has_exact_int8_products
from transformer_mt.run_folder import RunFolder
from transformer_mt.text.languages import has_no_word_spaces
from transformer_mt.text.lines import read_lines
from transformer_mt.translator import Translator

_PROBES = 200
_IDENTICAL = 0.995  # of the lines, in float32
# Between the scores of identical lines, in float32; relative where a score is larger than one, as of a sum.
_SCORES = 1e-3
_FEW_WORDS = 4
_BLEU = 95.0  # of a quantised model's output against ours; a format's `least_bleu` is another


@dataclass(frozen=True)
class Proof:
    """The result of the comparison."""

    quantization: str
    sentences: int
    """Lines that were compared."""
    identical: int
    """Lines that both translate alike."""
    largest_difference: float
    """Between the scores of such lines."""
    bleu: float
    """BLEU of the exported model's output against ours."""
    left_out: int = 0
    """Lines that cannot be compared: they are divided, or stopped at a length limit, elsewhere there."""
    ties: int = 0
    """Lines that differ, though both models give each translation the same score: the search went another
    way where two were equally good but for rounding.
    """

    def __str__(self) -> str:
        left_out = (
            f"; {self.left_out} that are split or stopped at their length limit were left out"
            if self.left_out
            else ""
        )
        ties = f" ({self.ties} others by one with an equal score in both)" if self.ties else ""
        return (
            f"{self.quantization}: {self.identical} of {self.sentences} probe sentences translated "
            f"identically{ties}, scores within {self.largest_difference:.1e}, BLEU against the run's own "
            f"output {self.bleu:.2f}{left_out}"
        )


def probe_sentences(run: RunFolder, data: DataConfig, tokenizer: Tokenizer, file: str | None) -> list[str]:
    """Sentences of the file, else of the validation set, else of test sets the run was scored on, else of
    random pieces.
    """
    if file:
        sentences = _sample(read_lines(file))
        if not sentences:
            raise InputError(f"{file}: must hold sentences, but is empty")
        return sentences
    try:
        valid = data.valid_sets[0]
        return _sample(src for src, _ in read_set(valid, data.languages, run.path, "valid"))
    except InputError as error:
        for scored in sorted(run.evaluation.glob("*.jsonl")):
            say(f"{error}; the probe is made of the sources in {scored} instead")
            return _sample(json.loads(line)["source"] for line in read_lines(scored))
        say(f"{error}; the probe is made of random tokens instead; a file of sentences gives a better one")
    draw = random.Random(0)
    first, last = EOS + 1, tokenizer.src.vocab_size() - 1
    lines = [[draw.randint(first, last) for _ in range(draw.randint(2, 15))] for _ in range(_PROBES)]
    return [text for ids in lines if (text := " ".join(tokenizer.src.decode(ids).split()))]


def _sample(lines: Iterable[str]) -> list[str]:
    """Lines with text at equal distances: runtimes differ in what they do with an empty line."""
    return evenly_spaced([line for line in lines if line.strip()], _PROBES)


def prove(ours: Translator, target: ExportFormat, folder: Path, sentences: Sequence[str]) -> Proof:
    """Translate with our model and with the runtime of the exported one in `folder`, and compare."""
    results = list(show_progress(ours.stream(sentences), "proof", len(sentences), unit="sentences"))
    pairs = [(result.source, output) for result in results if (output := target.expected(result))]
    outputs = target.translate(folder, [source for source, _ in pairs])
    left_out = len(results) - len(pairs)
    expected = [output for _, output in pairs]
    differing = [
        (source, theirs)
        for (source, mine), theirs in zip(pairs, outputs)
        if mine.translation != theirs.translation
    ]
    scores = _our_scores(ours, differing) if target.quantization == "float32" else []
    facts = target.quantization, ours.target_lang, left_out
    return compare(expected, outputs, *facts, scores, getattr(target, "least_bleu", _BLEU))


def _our_scores(ours: Translator, lines: Sequence[tuple[str, Output]]) -> list[float]:
    """The scores that our model gives translations of the exported one; NaN where one is too long."""
    ids = {piece: i for i, piece in enumerate(ours.tokenizer.all_pieces_tgt)}
    sources = ours.encode_src([source for source, _ in lines], None)
    encoded = ours.tokenizer.encode_tgt([output.translation for _, output in lines])
    scores = []
    for (source, output), src, again in zip(lines, sources, encoded):
        tgt = [ids[piece] for piece in output.tokens] or again
        try:
            (scored,) = score(ours, [Pair("", source, output.translation, [(src, tgt)])])
            scores.append(scored.score)
        except InputError:
            scores.append(math.nan)
    return scores


def compare(
    expected: Sequence[Output],
    outputs: Sequence[Output],
    quantization: str,
    target_lang: str,
    left_out: int = 0,
    scores: Sequence[float] = (),
    least_bleu: float = _BLEU,
) -> Proof:
    """WorkError if the `outputs` differ from ours by more than they may. `scores` are those that our model
    gives the outputs that differ, in order.
    """
    if not expected:
        raise WorkError(
            f"the export must be compared on sentences it can translate whole, but all {left_out} are "
            "split or stopped at their length limit; it was not kept, give shorter ones with ",
            Setting("probe"), ", or train the model longer",
        )  # fmt: skip
    if len(outputs) != len(expected):
        raise WorkError(
            f"the runtime of the export must translate each of {len(expected)} lines, but gives "
            f"{len(outputs)} translations; it was not kept"
        )
    differences = [abs(a.score - b.score) / max(1.0, abs(a.score)) for a, b in zip(expected, outputs)]
    is_alike = [a.translation == b.translation for a, b in zip(expected, outputs)]
    others = [output for output, same in zip(outputs, is_alike) if not same]
    alike = sum(is_alike)
    ties = sum(abs(ours - b.score) <= _SCORES * max(1.0, abs(ours)) for ours, b in zip(scores, others))
    difference = max((by for by, same in zip(differences, is_alike) if same), default=0.0)
    # SacreBLEU's word splitters are extras. Lines of fewer than four words have no four-gram.
    num_words = sum(len(output.translation.split()) for output in expected)
    is_short = num_words < _FEW_WORDS * len(expected)
    tokenize = "char" if is_short or has_no_word_spaces(target_lang) else "13a"
    translations = [output.translation for output in outputs]
    references = [[output.translation] for output in expected]
    bleu_score = build_bleu(target_lang, tokenize, lowercase=False).score([], translations, references)
    # SacreBLEU's is 0 where no line has four characters
    bleu = 100.0 if alike == len(expected) else bleu_score.value
    proof = Proof(quantization, len(expected), alike, difference, bleu, left_out, ties)
    if quantization == "float32":
        if alike + ties < int(_IDENTICAL * len(expected)) or not difference <= _SCORES:
            raise WorkError(
                f"the export must translate {_IDENTICAL:.1%} of the lines identically, or by one that "
                f"has the same score in both, with scores within {_SCORES}, but: {proof}; it was not kept"
            )
    elif bleu < least_bleu:
        why = "" if has_exact_int8_products() else (
            "; this CPU has no VNNI, so that int8 products overflow: export on one that has it, or "
            "with CT2_USE_MKL=1 in the environment, with which they are exact but slow"
        )  # fmt: skip
        raise WorkError(
            f"the export must have a BLEU of {least_bleu:.0f} against the run's own output, but: {proof}; it "
            "was not kept, give sentences like those it will translate with ",
            Setting("probe"),
            ", or another ",
            Setting("quantization"),
            why,
        )
    return proof
