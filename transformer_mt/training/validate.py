"""How good the model is now, on the validation set."""

import math
from dataclasses import dataclass

import torch

from transformer_mt.config import Config
from transformer_mt.data.batching import validation_batches
from transformer_mt.data.prepare import PreparedData
from transformer_mt.data.tokenizer import PAD
from transformer_mt.decoding.translator import Translator
from transformer_mt.evaluation.scores import Score, corpus_scores
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.loss import cross_entropy


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
        return math.exp(min(100.0, self.loss))

    @property
    def bleu(self) -> float:
        return self.scores[0].value

    def monitored(self, monitor: str) -> float:
        """The number that is to rise."""
        return self.bleu if monitor == "bleu" else -self.loss


def validate(model: Transformer, data: PreparedData, config: Config, device: torch.device) -> Validation:
    """Loss over all validation pairs, greedy translations of the first `validate_sentences`."""
    model.eval()
    loss = validation_loss(model, data, config.train.batch_tokens, device)
    pairs = data.valid_text[: config.train.validate_sentences]
    greedy = config.decode.model_copy(update={"beam": 1})
    translator = Translator.of_config(model, data.tokenizer, config, greedy)
    translations = [result.translation for result in translator.translate([src for src, _ in pairs])]
    scores = corpus_scores(
        translations,
        [tgt for _, tgt in pairs],
        config.data.target_lang,
        config.evaluate.tokenize,
        config.evaluate.lowercase,
        metrics=("BLEU", "chrF"),
    )
    chosen = [i * len(pairs) // 3 for i in range(min(3, len(pairs)))]
    model.train()
    return Validation(loss, scores, [(*pairs[i], translations[i]) for i in chosen])


@torch.inference_mode()
def validation_loss(model: Transformer, data: PreparedData, batch_tokens: int, device: torch.device) -> float:
    """Negative log-likelihood per target token; nan where no validation pair fits a batch."""
    nll, tokens = 0.0, 0
    for batch in validation_batches(data.valid, batch_tokens):
        batch = batch.to(device)
        logits = model(batch.src, batch.src_mask, batch.tgt_in)
        nll += cross_entropy(logits, batch.tgt_out, 0.0, PAD)[1].item()
        tokens += batch.num_tokens
    return nll / tokens if tokens else math.nan
