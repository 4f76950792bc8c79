"""The labels that a model gives texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from transformer_mt.config import Config
from transformer_mt.data.batches.batch import make_encoder_batch
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.model.interface import TranslationModel
from transformer_mt.settings.corpus_keys import label_piece
from transformer_mt.translation.engines.engine import batches

_BATCH_TOKENS = 8192


@dataclass(frozen=True)
class Classified:
    """A text's label."""

    label: str = ""
    """Empty for a text without words."""
    probabilities: dict[str, float] = field(default_factory=dict)
    """Of every label, the most probable first."""


class Classifier:
    """Gives texts the labels of `data.labels`; a text that is too long loses its end."""

    def __init__(self, model: TranslationModel, tokenizer: Tokenizer, config: Config) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._most, self._labels = config.data.max_length - 1, config.data.labels
        if not self._labels:
            raise InputError("the model was not trained with objective: classification")
        self._ids = [tokenizer.control_id(label_piece(label)) for label in self._labels]

    @torch.inference_mode()
    def classify(self, texts: Sequence[str]) -> list[Classified]:
        """The label of each text, in order."""
        rows = [[BOS, *ids[: self._most], EOS] for ids in self._tokenizer.encode_src(texts)]
        results = [Classified()] * len(rows)
        device = next(self._model.parameters()).device
        with_words = [i for i, text in enumerate(texts) if text.strip()]
        for numbers in batches([len(rows[i]) for i in with_words], 1, _BATCH_TOKENS):
            chosen = [with_words[number] for number in numbers]
            arrays = [np.array(rows[i]) for i in chosen]
            batch = make_encoder_batch(arrays, arrays).to(device)
            first_BD = self._model.hidden(batch.src, batch.src_mask, batch.tgt_in)[:, 0]
            logits_BL = self._model.output(first_BD).float()[:, self._ids]
            for i, values in zip(chosen, logits_BL.softmax(dim=-1).tolist()):
                order = sorted(range(len(values)), key=lambda label: -values[label])
                results[i] = Classified(
                    self._labels[order[0]], {self._labels[label]: values[label] for label in order}
                )
        return results

    def labels(self, texts: Sequence[str]) -> Iterator[str]:
        """The label of each text, in order."""
        return (one.label for one in self.classify(texts))
