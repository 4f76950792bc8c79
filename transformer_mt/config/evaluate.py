"""The YAML's `evaluate` section."""

from typing import Literal

from transformer_mt.config.section import Section


class EvaluateConfig(Section):
    """How translations are scored."""

    tokenize: Literal["auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none"] = "auto"
    """BLEU's tokenizer; auto goes by the target language, none is for text that is tokenised already."""
    lowercase: bool = False
    """Score without regard to case; the signature says so."""
