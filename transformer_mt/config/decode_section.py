"""The YAML's sections `decode` and `evaluate`: the search, and the scores."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from transformer_mt.errors import Setting
from transformer_mt.parts import names_of
from transformer_mt.settings.part import PartName, PartOf
from transformer_mt.settings.section import (
    AutoOrBool,
    AutoOrPositive,
    Changeable,
    Conflict,
    Mark,
    NonNegative,
    OnlyForSearches,
    Section,
)


class DecodeConfig(Section):
    """The search for the best translation."""

    search: Literal["beam", "sample", "mbr"] = "beam"
    """beam: beam search; sample: the most probable of several random samples; mbr: the sample most similar to
    all samples (needs `samples`).
    """
    beam: Annotated[int, Field(gt=0, le=1000), OnlyForSearches(("beam",))] = 5
    """Hypotheses kept by beam search; 1 is greedy search."""
    stop_early: Annotated[bool, OnlyForSearches(("beam",))] = True
    """End the search when `beam` hypotheses have ended, as CTranslate2 always does; false: continue while
    an unfinished one is better, which helps with tiny vocabularies.
    """
    length_penalty: Annotated[float, OnlyForSearches(("beam", "sample"))] = Field(1.0, ge=0.0, le=10.0)
    """Exponent a of score = log P / length^a; 0 prefers short translations, 1 is the mean per token."""
    length_penalty_form: Annotated[Literal["plain", "gnmt"], OnlyForSearches(("beam", "sample"))] = "plain"
    """Base of the length penalty: length, or (5 + length) / 6 (Wu et al. 2016)."""
    samples: Annotated[int, Field(gt=0, le=10_000)] = 1
    """Samples per line, for `sample` and `mbr`."""
    temperature: float = Field(1.0, gt=0.0, le=100.0)
    """Sampling: divisor of the log-probabilities."""
    top_k: NonNegative = 0
    """Sampling: only the k likeliest tokens; 0 is all."""
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    """Sampling: only the likeliest tokens that together have this probability."""
    seed: Annotated[NonNegative, OnlyForSearches(("sample", "mbr"))] = 1
    """Random seed of sampling: the same line in the same batch always gets the same samples."""
    utility: Annotated[Literal["chrf", "bleu"], OnlyForSearches(("mbr",))] = "chrf"
    """The utility that mbr maximises: mean sentence chrF or BLEU against the other samples."""
    min_length: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Minimum number of tokens in a translation."""
    max_length: Annotated[Annotated[int, Field(gt=0, le=10_000)] | None, Mark.AFFECTS_SCORES] = None
    """Maximum number of tokens in a translation; by default max_length_ratio sets it."""
    max_length_ratio: Annotated[float, Mark.AFFECTS_SCORES] = Field(2.0, gt=0.0, le=100.0)
    """Maximum tokens of a translation: this times the source's, plus ten."""
    no_repeat_ngram: NonNegative = 0
    """No n-gram of this many tokens occurs twice in a translation; 0 turns it off."""
    banned: list[str] = Field([])
    """Words that are never written."""
    split_sentences: Annotated[AutoOrBool, Mark.AFFECTS_SCORES] = "auto"
    """Translate each sentence of a line by itself; auto: unless a fifth of the training sources had several
    sentences.
    """
    stages: list[Annotated[PartName, PartOf("stage", has_ours=False)]] = Field([])
    """Stages of translation that companions bring, in this order, after the built-in ones."""
    rules: list[Annotated[PartName, PartOf("rule", has_ours=False)]] = Field([])
    """Rules of the search that companions bring; each may forbid or favour next tokens."""
    lowercase_capitals: bool = True
    """Translate all-capitals sentences in lower case and write the translations in capitals."""
    protect_usual: bool = True
    """Web and mail addresses, placeholders (`{x}`, `{{x}}`, `${x}`, `%1$s`), tags and numbers with units
    (`5 kg`) pass through unchanged.
    """
    match_ends: bool = False
    """End a translation with a full stop (or ! or ?) exactly if its source has one, as menu texts need."""
    batch_tokens: AutoOrPositive = "auto"
    """Budget of one batch in padded source tokens x hypotheses; auto is 8192, or with torch on a GPU up to
    262144, depending on its memory and the vocabulary size.
    """

    @property
    def num_hypotheses(self) -> int:
        """Number of hypotheses per sentence that a search keeps."""
        return self.beam if self.search == "beam" else self.samples

    @property
    def in_words(self) -> str:
        """The search, and each other setting that is not the usual one: "beam 5, no_repeat_ngram 2"."""
        how = {
            "beam": f"beam {self.beam}",
            "sample": f"{self.samples} samples",
            "mbr": f"{self.samples} samples, mbr by {self.utility}",
        }[self.search]
        named = {"search", "beam", "samples", "utility", "batch_tokens"}
        others = self.model_dump(exclude=named, exclude_defaults=True)
        if others.get("split_sentences"):  # what auto usually becomes
            del others["split_sentences"]
        return ", ".join(
            [how, *(f"{key} {json.dumps(value, ensure_ascii=False)}" for key, value in others.items())]
        )

    def batch_budget(self, gpu_memory: int = 0, vocab_size: int = 1) -> int:
        """`batch_tokens` for a CPU, or for a GPU of so many bytes and a vocabulary of this size."""
        if self.batch_tokens != "auto":
            return self.batch_tokens
        # With small batches a GPU waits for the host. With sources of four tokens, four copies of the
        # vocabulary's scores take a quarter of the memory.
        return min(max(2**13, gpu_memory // (16 * vocab_size)), 2**18)

    def conflicts(self) -> Iterator[Conflict]:
        of_sampling = {"samples": 1, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        for key, default in of_sampling.items() if self.search == "beam" else ():
            if (value := getattr(self, key)) != default:
                yield (
                    _key(key), f" must be {default} with ", _key("search", self.search),
                    f", but is {value}; it needs ", _key("search", "sample"),
                )  # fmt: skip
        if self.search == "mbr" and self.samples < 2:
            yield (
                _key("samples"), " must be at least 2 with ", _key("search", "mbr"),
                f", but is {self.samples}; 32 is usual",
            )  # fmt: skip
        if self.max_length and self.min_length > self.max_length:
            yield (
                _key("min_length"), " must be at most ", _key("max_length"),
                f" ({self.max_length}), but is {self.min_length}",
            )  # fmt: skip
        if any(not word.strip() for word in self.banned):
            yield _key("banned"), " must hold words, but one of them is empty"


def _key(name: str, value: Any = None) -> Setting:
    return Setting(f"decode.{name}", value)


def metric_name(value: Any) -> Any:
    """The metric's name as we capitalise it, however the user wrote it."""
    names = {name.lower(): name for names in names_of("metric") for name in names}
    return names.get(value.lower(), value) if isinstance(value, str) else value


MetricName = Annotated[PartName, PartOf("metric"), BeforeValidator(metric_name)]


class EvaluateConfig(Section):
    """How translations are scored."""

    metrics: Changeable[list[MetricName]] = Field([])
    """The metrics of `evaluate` and `compare`: BLEU, chrF, chrF++, TER, spBLEU, exact match, WER and CER
    (word and character error rate), or a companion's. [] is BLEU, chrF and TER, but without TER for languages
    without spaces between words, where it takes a tenth of a second a sentence. Validations leave out TER
    unless train.monitor names it.
    """
    tokenize: Annotated[
        Literal["auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"], Mark.AFFECTS_SCORES
    ] = "auto"
    """BLEU's tokenizer; auto follows the target language, none is for text that is already tokenised."""
    lowercase: Annotated[bool, Mark.AFFECTS_SCORES] = False
    """Ignore case in scores; the signature records it."""

    @field_validator("metrics")
    @classmethod
    def _each_metric_once(cls, metrics: list[str]) -> list[str]:
        if len(set(metrics)) < len(metrics):
            raise ValueError(f"evaluate.metrics must differ, but are {', '.join(metrics)}")
        return metrics
