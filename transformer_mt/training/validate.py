"""How good the model is now, on the validation set."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import mean
from typing import Any

import torch

from transformer_mt.config import Config, DecodeConfig
from transformer_mt.corpora.evaluation_sets import evenly_spaced
from transformer_mt.data.batches.batching import validation_batches
from transformer_mt.data.batches.rows import Rows
from transformer_mt.data.changes.training_rows import held_out_rows
from transformer_mt.data.preparation.prepared_data import PreparedData, ValidationSet
from transformer_mt.errors import WorkError
from transformer_mt.evaluation.classifier import Classifier
from transformer_mt.evaluation.metric import Metric, Score
from transformer_mt.evaluation.metrics import build_metrics, corpus_scores, metric_names
from transformer_mt.model.interface import TranslationModel
from transformer_mt.progress_bar import show_progress
from transformer_mt.ranks import Ranks
from transformer_mt.training.update.loss_kinds import CrossEntropy
from transformer_mt.training.update.step import Objective
from transformer_mt.translation.result import Options, Translation
from transformer_mt.translation.translator import Translator

_OF_LABELS = ["exact match"]
"""The metric of classification."""


class NotFinite(WorkError):
    """The validation loss is not finite, and neither are the outputs, so nothing can be translated."""


@dataclass(frozen=True)
class SetScores:
    """The scores of one validation set, or their means over several."""

    name: str
    loss: float
    """Negative log-likelihood per target token, without smoothing."""
    scores: list[Score]
    """Scores of greedy translations; the one that `train.monitor` names comes first."""

    @property
    def ppl(self) -> float:
        return math.exp(min(self.loss, 100.0))  # in this order nan stays nan

    @property
    def facts(self) -> dict[str, Any]:
        """For metrics.jsonl; the score of what is not translated is its perplexity."""
        scores = self.scores or [Score("perplexity", self.ppl, "pieces of validation", 3)]
        return {"name": self.name, "loss": self.loss, "scores": [vars(score) for score in scores]}


@dataclass(frozen=True)
class Validation:
    """One validation."""

    deciding: SetScores
    """The scores of the set that `train.monitor_set` names, or the means."""
    sets: list[SetScores]
    """The scores of each validation set."""
    score: float
    """The score that training maximises."""
    samples: list[tuple[str, str, str]]
    """Three of (source, reference, translation)."""


def validate(
    model: TranslationModel,
    data: PreparedData,
    config: Config,
    device: torch.device,
    ranks: Ranks | None = None,
    micro_batch_tokens: int = 0,
) -> Validation:
    """For each set: loss over the pairs that training would keep, greedy translations of
    `validate_sentences` at equal distances; each rank does its share. Batches are divided for the loss as
    for updates.
    """
    ranks = ranks or Ranks()
    model.eval()
    # Greedy search without rules, whatever `decode` says: changing the search must not change which
    # checkpoint is best. Only the limits of length are those of `decode`.
    same = {"batch_tokens", "split_sentences", "max_length", "max_length_ratio"}
    kept = config.decode.model_dump(include=same)
    greedy = DecodeConfig.model_validate({"beam": 1, **kept})
    translator = Translator.of_config(model, data.tokenizer, config, greedy)
    of_sets: list[SetScores] = []
    samples: list[list[tuple[str, str, str]]] = []
    for valid in data.valid:
        if valid.objective != "translation":
            loss = _loss(model, valid, data, config, device, ranks, micro_batch_tokens)
            labelled: list[Score] = []
            if valid.objective == "classification":
                metrics = build_metrics(config.evaluate, config.data.target_lang, _OF_LABELS)
                labelled = _label_scores(model, valid, data, config, metrics)
            of_sets.append(SetScores(valid.name, loss, labelled))
            samples.append([])
            continue
        sentences = evenly_spaced(valid.sentences, config.train.validate_sentences)
        sources, references = [src for src, _ in sentences], [targets for _, targets in sentences]
        of_set = translator.for_set(valid.languages)
        metrics = build_metrics(config.evaluate, of_set.target_lang, validation_metrics(config))
        loss = _loss(model, valid, data, config, device, ranks, micro_batch_tokens)
        translations = _translate(of_set, sources, Options(tag=valid.tag), ranks)
        scores = _scores(metrics, sources, translations, references, ranks)
        of_sets.append(SetScores(valid.name, loss, scores))
        rows = [(src, targets[0], got) for src, targets, got in zip(sources, references, translations)]
        samples.append(evenly_spaced(rows, 3))
    model.train()
    named = [i for i, valid in enumerate(of_sets) if valid.name == config.train.monitor_set]
    # Sets of plain text have no score to take the mean of.
    deciding = of_sets[named[0]] if named else mean_of([one for one in of_sets if one.scores] or of_sets)
    if config.train.monitor == "loss" and not named:  # which all sets have
        deciding = replace(deciding, loss=mean(one.loss for one in of_sets))
    score = _monitored(deciding, config)
    shown = samples[named[0]] if named else next(filter(None, samples), [])
    return Validation(deciding, of_sets, score, shown)


def _loss(
    model: TranslationModel,
    valid: ValidationSet,
    data: PreparedData,
    config: Config,
    device: torch.device,
    ranks: Ranks,
    micro_batch_tokens: int,
) -> float:
    """The loss of one set. NotFinite where it is not."""
    rows = held_out_rows(config, valid.pairs, valid.objective, data.tokenizer)
    batch_tokens = int(config.train.batch_tokens)
    loss = validation_loss(model, rows, batch_tokens, device, ranks, micro_batch_tokens)
    if len(valid.pairs) and not math.isfinite(loss):
        raise NotFinite(f"the validation loss is {loss}")
    return loss


def _scores(
    metrics: Sequence[Metric],
    sources: Sequence[str],
    translations: Sequence[str],
    references: Sequence[Sequence[str]],
    ranks: Ranks,
) -> list[Score]:
    """The scores by rank 0, on each rank: a metric of others may give another number in another process, and
    ranks that disagree on the best checkpoint would wait for each other.
    """
    scores = corpus_scores(metrics, sources, translations, references) if ranks.is_rank_zero else []
    return [Score(**facts) for facts in ranks.broadcast([vars(score) for score in scores])]


def _label_scores(
    model: TranslationModel,
    valid: ValidationSet,
    data: PreparedData,
    config: Config,
    metrics: Sequence[Metric],
) -> list[Score]:
    """The share of the texts that get their label."""
    texts, labels = [src for src, _ in valid.sentences], [targets for _, targets in valid.sentences]
    predicted = list(Classifier(model, data.tokenizer, config).labels(texts))
    return corpus_scores(metrics, texts, predicted, labels)


def validation_metrics(config: Config) -> list[str]:
    """The metrics of a validation, the monitored one first. TER, which is slow, is left out unless it is
    monitored or there is no other.
    """
    monitored = [config.train.monitor] if config.train.monitor != "loss" else []
    others = [name for name in metric_names(config.evaluate, config.data.target_lang) if name != "TER"]
    return list(dict.fromkeys([*monitored, *others])) or ["TER"]


def _monitored(result: SetScores, config: Config) -> float:
    """The monitored score, negative where less is better."""
    monitor = config.train.monitor
    if monitor == "loss":
        return -result.loss
    (metric,) = build_metrics(config.evaluate, config.data.target_lang, [monitor])
    value = next(score.value for score in result.scores if score.name == metric.name)
    return -value if metric.higher_is_better is False else value


def mean_of(sets: Sequence[SetScores]) -> SetScores:
    """The scores of all sets together, for the log and the monitor."""
    if len(sets) == 1:
        return sets[0]
    scores = [
        # BLEU's tokenizer goes by the language of a set: all signatures belong to the mean.
        Score(
            same_metric[0].name,
            mean(score.value for score in same_metric),
            "; ".join(dict.fromkeys(score.signature for score in same_metric)),
        )
        for same_metric in zip(*(one.scores for one in sets))
    ]
    return SetScores("mean", mean(one.loss for one in sets), scores)


def _translate(translator: Translator, sources: Sequence[str], options: Options, ranks: Ranks) -> list[str]:
    """All translations, on each rank."""
    share = ranks.share(len(sources))
    results: Iterable[Translation] = translator.stream(sources[share.start : share.stop], options)
    if ranks.is_rank_zero:
        results = show_progress(results, "validation", len(share), unit="sentences")
    shares = ranks.gather([result.translation for result in results])
    return [translation for share in shares for translation in share]


@torch.inference_mode()
def validation_loss(
    model: TranslationModel,
    rows: Rows,
    batch_tokens: int,
    device: torch.device,
    ranks: Ranks,
    micro_batch_tokens: int = 0,
) -> float:
    """Negative log-likelihood per target token; nan where no validation pair fits a batch. Batches of more
    than `micro_batch_tokens` positions are computed in parts, unless it is 0.
    """
    objective = Objective(model, CrossEntropy(0.0))
    losses, tokens = [torch.zeros((), device=device)], 0.0
    for batch in islice(validation_batches(rows, batch_tokens), ranks.rank, None, ranks.size):
        for part in batch.split(micro_batch_tokens or batch.num_positions):
            losses.append(objective(part.to(device))[1])
        tokens += batch.num_tokens
    nll, tokens = ranks.sum(sum(torch.stack(losses).tolist()), tokens)
    return nll / tokens if tokens else math.nan
