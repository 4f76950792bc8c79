"""Scores of models that translate nothing: perplexity, masked pieces, labels."""

import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F

from transformer_mt.config.parts.objective import Objective
from transformer_mt.data.batches.batching import validation_batches
from transformer_mt.data.batches.encoded_pairs import EncodedPairs, write_chunks
from transformer_mt.data.batches.objectives import of_objectives
from transformer_mt.data.corpora.held_out import AnySet
from transformer_mt.data.preparation.encode import encoded_chunks
from transformer_mt.evaluation.metric import Score
from transformer_mt.language_models.classify import Classifier
from transformer_mt.language_models.load import LoadedModel
from transformer_mt.text.pair import Pair

_BATCH_TOKENS = 4096


def text_scores(loaded: LoadedModel, corpus: AnySet, rows: Sequence[Pair]) -> list[Score]:
    """The scores of a test set: of labels their accuracy; of plain text the perplexity of what is predicted,
    and of masked pieces their accuracy, of the next pieces the bits for each character. Texts that are too
    long for the model are left out. The masks are always the same.
    """
    data, tokenizer = loaded.config.data, loaded.tokenizer
    objective = data.objective_of(corpus)
    if objective == "classification":
        found = Classifier(loaded.model, tokenizer, loaded.config).labels([text for text, _ in rows])
        right = sum(label == predicted for (_, label), predicted in zip(rows, found))
        return [Score("accuracy", 100 * right / len(rows), f"texts:{len(rows)}|labels:{len(data.labels)}")]
    before, before_tgt = data.pieces_before(corpus), data.target_piece(data.languages_of(corpus))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.arrow"
        write_chunks(file, encoded_chunks(rows, tokenizer, data, Counter(), before, before_tgt))
        texts = EncodedPairs([file])
        nll, right, pieces = _predicted(loaded, texts, objective)
        num_texts = len(texts)
        characters = sum(len(tokenizer.decode_tgt(texts.tgt(i).tolist())) for i in range(num_texts))
    if not pieces:
        return []
    signature = f"texts:{num_texts} of {len(rows)}|pieces:{pieces}|vocabulary:{tokenizer.src.vocab_size()}"
    scores = [Score("perplexity", math.exp(min(nll / pieces, 100.0)), signature, digits=3)]
    if objective == "masked_lm":
        scores.append(Score("accuracy of masked pieces", 100 * right / pieces, signature))
    if objective == "causal_lm":
        bits = Score(
            "bits per character", nll / math.log(2) / max(1, characters), f"{signature}|chars:{characters}", 4
        )
        scores.append(bits)
    return scores


@torch.inference_mode()
def _predicted(loaded: LoadedModel, texts: EncodedPairs, objective: Objective) -> tuple[float, int, int]:
    """Negative log-likelihood of the predicted pieces, those that are the most probable, and their number."""
    nll, right, pieces = 0.0, 0, 0
    changing = of_objectives(loaded.config, texts, [len(texts)], [objective], loaded.tokenizer)
    for batch in validation_batches(texts, _BATCH_TOKENS, changing):
        on_device = batch.to(loaded.device)
        hidden_BTD = loaded.model.hidden(on_device.src, on_device.src_mask, on_device.tgt_in)
        logits_RV = loaded.model.output(hidden_BTD.flatten(0, 1)[on_device.real]).float()
        targets_R = on_device.tgt_out.flatten()[on_device.real]
        nll += float(F.cross_entropy(logits_RV, targets_R, reduction="sum"))
        right += int((logits_RV.argmax(dim=-1) == targets_R).sum())
        pieces += batch.num_tokens
    return nll, right, pieces
