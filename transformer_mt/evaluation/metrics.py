"""BLEU, chrF and TER by sacreBLEU, each with the signature that says how it was computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformer_mt.errors import InputError


@dataclass(frozen=True)
class Score:
    """One metric of one set of translations."""

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f}  {self.signature}"


def bleu_tokenizer(target_lang: str) -> str:
    """sacreBLEU's tokenizer for a language: zh, ja-mecab, ko-mecab, else 13a."""
    language = target_lang.lower().replace("_", "-").split("-")[0]
    return {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}.get(language, "13a")


def bleu_metric(target_lang: str, tokenize: str = "auto", lowercase: bool = False) -> Any:
    """sacreBLEU's BLEU with the tokenizer asked for; InputError names the extra where one is missing."""
    from sacrebleu.metrics.bleu import BLEU

    try:
        # Forced: sacreBLEU's warning about tokenised text is said by `evaluate`, in one line.
        return BLEU(
            lowercase=lowercase,
            tokenize=bleu_tokenizer(target_lang) if tokenize == "auto" else tokenize,
            force=True,
        )
    except (ImportError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"BLEU for {target_lang} needs a word splitter: pip install 'transformer-mt[zh-ja-ko]' ({reason})"
        ) from None


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    target_lang: str,
    tokenize: str = "auto",
    lowercase: bool = False,
    metrics: Sequence[str] = ("BLEU", "chrF", "TER"),
) -> list[Score]:
    """The metrics of detokenised `hypotheses` against one reference each."""
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if len(hypotheses) != len(references):
        raise InputError(
            f"there must be one reference a translation, but there are {len(references):,} for "
            f"{len(hypotheses):,}"
        )
    tokenizer = bleu_tokenizer(target_lang) if tokenize == "auto" else tokenize
    asian = tokenizer in ("zh", "ja-mecab", "ko-mecab", "char")
    scores = []
    for name in metrics:
        if name == "BLEU":
            metric = bleu_metric(target_lang, tokenize, lowercase)
        elif name == "chrF":
            metric = CHRF(lowercase=lowercase)
        else:
            metric = TER(case_sensitive=not lowercase, normalized=asian, asian_support=asian)
        value = metric.corpus_score(list(hypotheses), [list(references)]).score
        scores.append(Score(name, value, str(metric.get_signature())))
    return scores


def tokenised_note(references: Sequence[str], tokenize: str) -> str | None:
    """What must be said with a BLEU on tokenised text; None where the references look like plain text.

    Tokenised means that `tokenize` is none, or that most sentences that end in . ? or ! have a space before
    it.
    """
    ended = [line for line in references if line.rstrip().endswith((".", "?", "!"))]
    spaced = sum(line.rstrip()[-2:-1] == " " for line in ended)
    if tokenize == "none" or spaced > len(ended) / 2:
        return "note: the references are tokenised text; compare this BLEU only with the same tokenisation"
    return None
