"""The YAML's `evaluate` section."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from transformer_mt.parts import names_of
from transformer_mt.settings.part import PartName, PartOf
from transformer_mt.settings.section import Changeable, Mark, Section


def metric_name(value: Any) -> Any:
    """The name with its capitals, for a user who wrote it without."""
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
