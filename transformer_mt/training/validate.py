"""How good the model is now, on the validation set."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import torch

from transformer_mt.config import Config, DecodeConfig
from transformer_mt.data.batching import validation_batches
from transformer_mt.data.prepare import PreparedData
from transformer_mt.evaluation.metrics import Score, corpus_scores
from transformer_mt.model.interface import TranslationModel
from transformer_mt.progress_bar import show_progress
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.step import Objective
from transformer_mt.translation.result import Options, Translation
from transformer_mt.translation.translator import Translator


@dataclass(frozen=True)
class Validation:
    """One validation."""

    loss: float
    """Negative log-likelihood per target token, without smoothing."""
    scores: list[Score]
    """BLEU and chrF of greedy translations."""
    samples: list[tuple[str, str, str]]
    """Three of (source, reference, translation)."""

    @property
    def ppl(self) -> float:
        return math.exp(min(self.loss, 100.0))  # in this order nan stays nan

    @property
    def bleu(self) -> float:
        return self.scores[0].value

    def monitored(self, monitor: str) -> float:
        """The score to maximise."""
        return self.bleu if monitor == "bleu" else -self.loss


def validate(
    model: TranslationModel,
    data: PreparedData,
    config: Config,
    device: torch.device,
    ranks: Ranks | None = None,
) -> Validation:
    """Loss over the validation pairs that training would keep, greedy translations of the first
    `validate_sentences`; each rank does its share.
    """
    ranks = ranks or Ranks()
    model.eval()
    loss = validation_loss(model, data, int(config.train.batch_tokens), device, ranks)
    pairs = data.valid_text[: config.train.validate_sentences]
    # Whatever search and rules `translate` will have: they must not choose between checkpoints.
    kept = config.decode.model_dump(include={"batch_tokens", "split_sentences"})
    greedy = DecodeConfig.model_validate({"beam": 1, **kept})
    translator = Translator.of_config(model, data.tokenizer, config, greedy)
    mine = [src for src, _ in pairs[ranks.rank :: ranks.size]]
    options = Options(tag=config.data.valid.tag)
    results: Iterable[Translation] = translator.stream(mine, options)
    if ranks.is_rank_zero:
        results = show_progress(results, "validation", len(mine), unit="sentences")
    shares = ranks.gather([result.translation for result in results])
    translations = [shares[i % ranks.size][i // ranks.size] for i in range(len(pairs))]
    scores = corpus_scores(
        translations,
        [tgt for _, tgt in pairs],
        config.data.target_lang,
        config.evaluate.tokenize,
        config.evaluate.lowercase,
        metrics=("BLEU", "chrF"),
    )
    shown = min(3, len(pairs))
    chosen = [i * len(pairs) // shown for i in range(shown)]
    model.train()
    return Validation(loss, scores, [(*pairs[i], translations[i]) for i in chosen])


@torch.inference_mode()
def validation_loss(
    model: TranslationModel, data: PreparedData, batch_tokens: int, device: torch.device, ranks: Ranks
) -> float:
    """Negative log-likelihood per target token; nan where no validation pair fits a batch."""
    objective = Objective(model, label_smoothing=0.0)
    nll, tokens = 0.0, 0.0
    for batch in islice(validation_batches(data.valid, batch_tokens), ranks.rank, None, ranks.size):
        nll += objective(batch.to(device))[1].item()
        tokens += batch.num_tokens
    nll, tokens = ranks.sum(nll, tokens)
    return nll / tokens if tokens else math.nan
