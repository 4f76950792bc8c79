"""The YAML's `evaluate` section."""

from typing import Annotated, Literal

from transformer_mt.config.section import Mark, Section


class EvaluateConfig(Section):
    """How translations are scored."""

    tokenize: Annotated[
        Literal["auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"], Mark.AFFECTS_SCORES
    ] = "auto"
    """BLEU's tokenizer; auto goes by the target language, none is for text that is tokenised already."""
    lowercase: Annotated[bool, Mark.AFFECTS_SCORES] = False
    """Score without regard to case; the signature says so."""
