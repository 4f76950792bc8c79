"""Scores of models that translate nothing: perplexity, masked pieces, labels."""

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
import torch.nn.functional as F

from transformer_mt.cli.arguments import given
from transformer_mt.cli.evaluate import print_scores, update_report
from transformer_mt.cli.model_options import resource_names
from transformer_mt.companions.language_models.loaded_model import TextModel
from transformer_mt.config import Config
from transformer_mt.corpora.held_out import AnySet, EvaluationSet, read_set
from transformer_mt.data.batches.batching import validation_batches
from transformer_mt.data.batches.encoded_pairs import EncodedPairs, write_chunks
from transformer_mt.data.changes.training_rows import held_out_rows
from transformer_mt.data.preparation.encode_blocks import encoded_chunks
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.evaluation.classifier import Classifier
from transformer_mt.evaluation.metrics import Score
from transformer_mt.evaluation.set_evaluation import SeenShare, SystemRecord
from transformer_mt.files import to_json, write_text
from transformer_mt.run_folder import RunFolder
from transformer_mt.settings.part import PartName
from transformer_mt.text.lines import Pair
from transformer_mt.version import RESULTS

_BATCH_TOKENS = 4096
_OF_TRANSLATIONS = (
    "source", "reference", "external", "robust", "tag", "ensemble", "engine", "dtype", "links",
    "to", "from",
)  # fmt: skip
"""Options of `evaluate` that only a model which translates has."""
_NOT_GIVEN: tuple[object, ...] = (None, False, [], "auto")


def text_scores(loaded: TextModel, corpus: AnySet, rows: Sequence[Pair]) -> list[Score]:
    """The scores of a test set: of labels their accuracy; of plain text the perplexity of what is predicted,
    and of masked pieces their accuracy, of the next pieces the bits for each character. Texts that are too
    long for the model are left out. The masks are always the same.
    """
    data, tokenizer = loaded.config.data, loaded.tokenizer
    objective = data.objective_of(corpus)
    if objective == "classification":
        labels = Classifier(loaded.model, tokenizer, loaded.config).labels([text for text, _ in rows])
        right = sum(label.strip() == predicted for (_, label), predicted in zip(rows, labels))
        return [Score("accuracy", 100 * right / len(rows), f"texts:{len(rows)}|labels:{len(data.labels)}")]
    most = data.max_length - 1 - len(data.pieces_before(corpus))
    lengths = map(len, tokenizer.encode_src([text for text, _ in rows]))
    read = [row for row, length in zip(rows, lengths) if 0 < length <= most]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.arrow"
        write_chunks(file, (chunk for chunk, _ in encoded_chunks(read, tokenizer, data, corpus)))
        nll, right, pieces = _predicted(loaded, EncodedPairs([file]), objective)
    characters = sum(len(text) for text, _ in read)
    if not pieces:
        return []
    signature = f"texts:{len(read)} of {len(rows)}|pieces:{pieces}|vocabulary:{tokenizer.src.vocab_size()}"
    scores = [Score("perplexity", math.exp(min(nll / pieces, 100.0)), signature, digits=3)]
    if objective == "masked_lm":
        scores.append(Score("accuracy of masked tokens", 100 * right / pieces, signature))
    if objective == "causal_lm":
        bits = Score(
            "bits per character", nll / math.log(2) / max(1, characters), f"{signature}|chars:{characters}", 4
        )
        scores.append(bits)
    return scores


def save_scores(run: RunFolder, test: EvaluationSet, seen: SeenShare, scores: Sequence[Score]) -> None:
    """Keep the scores of a test set in the run's folder. WorkError where it takes none."""
    facts = {
        "corpus": test.corpus, "sentences": len(test.sentences), "scores": [asdict(s) for s in scores],
        "weights": run.weights_digest(), "results": RESULTS, "seen": seen.to_keep,
    }  # fmt: skip
    try:
        run.evaluation.mkdir(parents=True, exist_ok=True)
        write_text(run.scores_file(test.name), to_json(facts, indent=1) + "\n")
    except OSError as error:
        raise WorkError(
            f"{run.evaluation}: the scores could not be written: {error.strerror}; free some space or check "
            "the folder's rights"
        ) from None


@torch.inference_mode()
def _predicted(loaded: TextModel, texts: EncodedPairs, objective: PartName) -> tuple[float, int, int]:
    """The negative log-likelihood of all predicted tokens, how many are right, and their number."""
    nll, right, pieces = 0.0, 0, 0
    alone = loaded.config.data.masked_lm.model_copy(update={"next_sentence": False})
    data = loaded.config.data.model_copy(update={"masked_lm": alone})
    config = loaded.config.model_copy(update={"data": data})
    rows = held_out_rows(config, texts, objective, loaded.tokenizer)
    for batch in validation_batches(rows, _BATCH_TOKENS):
        on_device = batch.to(loaded.device)
        hidden_BTD = loaded.model.hidden(on_device.src, on_device.src_mask, on_device.tgt_in)
        logits_RV = loaded.model.output(hidden_BTD.flatten(0, 1)[on_device.real]).float()
        targets_R = on_device.tgt_out.flatten()[on_device.real]
        nll += float(F.cross_entropy(logits_RV, targets_R, reduction="sum"))
        right += int((logits_RV.argmax(dim=-1) == targets_R).sum())
        pieces += batch.num_tokens
    return nll, right, pieces


def evaluate_text(arguments: argparse.Namespace, folder: RunFolder, config: Config) -> None:
    """Print and save the test scores of an encoder-only or decoder-only model, which cannot translate."""
    of_translations = [
        name for name in (*_OF_TRANSLATIONS, *resource_names()) if vars(arguments).get(name) not in _NOT_GIVEN
    ]
    of_translations += [f"decode.{key}" for key in given(arguments, "decode.")]
    if of_translations:
        raise InputError(
            f"{folder}: ", Setting(of_translations[0]), " must be left out: it translates nothing"
        )
    if not config.data.test:
        raise InputError(f"{folder}: its config must have data.test to be evaluated, but has none")
    loaded = TextModel.load(folder.path, (config.model.kind,), arguments.device)
    record = SystemRecord([folder])
    for number, corpus in enumerate(config.data.test):
        sentences = list(read_set(corpus, config.data.languages, folder.path, "test"))
        test = EvaluationSet(f"test-{number}", corpus.describe(), sentences)
        seen = record.share(test)
        rows = [(text, target) for text, targets in sentences for target in targets]
        scores = text_scores(loaded, corpus, rows)
        save_scores(folder, test, seen, scores)
        print_scores(arguments, test, seen, scores, f"{corpus.describe()}, {len(rows):,} texts")
    update_report(folder, config)
