"""Validation, and the choice between the best checkpoint and the average (run.py) as the published model."""

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from transformer_mt import checkpoint
from transformer_mt.checkpoint import CheckpointError
from transformer_mt.config import Config, DecodeConfig
from transformer_mt.corpora.held_out import evenly_spaced
from transformer_mt.data.batches.batch import Rows
from transformer_mt.data.batches.batching import validation_batches
from transformer_mt.data.changes.training_rows import held_out_rows
from transformer_mt.data.preparation.prepared_data import PreparedData, ValidationSet
from transformer_mt.errors import WorkError, advice_on
from transformer_mt.evaluation.calibration import calibrate, fit_familiarity
from transformer_mt.evaluation.classifier import Classifier
from transformer_mt.evaluation.metrics import Score, build_metrics, corpus_scores, metric_names
from transformer_mt.files import to_json, write_text
from transformer_mt.messages import say, show_progress
from transformer_mt.model.interface import TranslationModel
from transformer_mt.ranks import Ranks
from transformer_mt.run.log import check_validations, check_weights, diverged, is_out_of_bounds
from transformer_mt.run.progress import is_better
from transformer_mt.run.report import write_report
from transformer_mt.run.run import Run
from transformer_mt.run_folder import usage_of
from transformer_mt.settings.objectives import objective_class
from transformer_mt.translation.result import Options, Translation
from transformer_mt.translator import Translator
from transformer_mt.update.build_updater import averaged, is_partial, whole
from transformer_mt.update.loss import CrossEntropy
from transformer_mt.update.step import Objective

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
        """The facts for metrics.jsonl. A set without scores gets its perplexity as the score."""
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
    """Compute the loss of each set over the pairs that training would keep, and score greedy translations of
    `validate_sentences` evenly spaced sentences. Each rank does its share. For the loss, batches are split
    into micro-batches as for updates.
    """
    ranks = ranks or Ranks()
    model.eval()
    # Greedy search without rules, whatever `decode` says: changing the search must not change which
    # checkpoint is best. `decode` sets only the batch size, the splitting of lines and the length limits.
    same = {"batch_tokens", "split_sentences", "max_length", "max_length_ratio"}
    kept = config.decode.model_dump(include=same)
    greedy = DecodeConfig.model_validate({"beam": 1, **kept})
    translator = Translator.of_config(model, data.tokenizer, config, greedy)
    of_sets: list[SetScores] = []
    samples: list[list[tuple[str, str, str]]] = []
    for valid in data.valid:
        if not objective_class(valid.objective).translates:
            loss = _loss(model, valid, data, config, device, ranks, micro_batch_tokens)
            labelled: list[Score] = []
            if objective_class(valid.objective).has_labels:
                metrics = build_metrics(config.evaluate, config.data.target_lang, _OF_LABELS)
                texts, labels = (
                    [src for src, _ in valid.sentences],
                    [targets for _, targets in valid.sentences],
                )
                predicted = list(Classifier(model, data.tokenizer, config).labels(texts))
                labelled = corpus_scores(metrics, texts, predicted, labels)
            of_sets.append(SetScores(valid.name, loss, labelled))
            samples.append([])
            continue
        sentences = evenly_spaced(valid.sentences, config.train.validate_sentences)
        sources, references = [src for src, _ in sentences], [targets for _, targets in sentences]
        of_set = translator.for_set(valid.languages)
        metrics = build_metrics(config.evaluate, of_set.target_lang, validation_metrics(config))
        loss = _loss(model, valid, data, config, device, ranks, micro_batch_tokens)
        translations = _translate(of_set, sources, Options(tag=valid.tag), ranks)
        # Only rank 0 computes scores: a third-party metric may give different numbers in different processes,
        # and ranks that disagree on the best checkpoint would wait for each other.
        scores = corpus_scores(metrics, sources, translations, references) if ranks.is_rank_zero else []
        shared = ranks.broadcast([vars(score) for score in scores])
        of_sets.append(SetScores(valid.name, loss, [Score(**facts) for facts in shared]))
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
    """The loss of one set. Raises NotFinite if the loss is not finite."""
    rows = held_out_rows(config, valid.pairs, valid.objective, data.tokenizer)
    batch_tokens = int(config.train.batch_tokens)
    loss = validation_loss(model, rows, batch_tokens, device, ranks, micro_batch_tokens)
    if len(valid.pairs) and not math.isfinite(loss):
        raise NotFinite(f"the validation loss is {loss}")
    return loss


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


_METADATA_KEY = "transformer_mt"


def validate_and_publish(run: Run) -> None:
    """Validate; a new best becomes the run's model, and is saved."""
    config, progress = run.config, run.progress
    result = _validated(run)
    # On new data the parent (update 0) may be as bad, but it is what this training is compared with.
    may_be_best = progress.step == 0 or not is_out_of_bounds(run, result.deciding.loss)
    is_best = progress.validated(result.score, result.deciding.loss, config.train.warmup, may_be_best)
    _record(run, result, "valid", is_best=is_best, stale=progress.stale)
    if is_best:
        save(run)  # before the model is published: a model without a checkpoint could not be resumed
        publish(run, run.weights(), result.score, result.deciding.loss)
    check_validations(run)


def save(run: Run) -> None:
    """Write a checkpoint, unless weights are not finite. A collective operation."""
    check_weights(run)
    run.save()


def _validated(run: Run) -> Validation:
    sizes = run.updater.micro_batch_tokens
    try:
        return validate(run.full_model(), run.data, run.config, run.device, run.ranks, sizes)
    except NotFinite as error:
        raise diverged(run, str(error)) from None


def _record(run: Run, result: Validation, event: str, **facts: object) -> None:
    """Write a validation to metrics.jsonl, the screen and the report."""
    step, deciding = run.progress.step, result.deciding
    run.metrics_log.write(
        event,
        step=step,
        epoch=run.batches.epochs,
        tokens=run.progress.tokens,
        seconds=run.progress.seconds,
        loss=deciding.loss,
        ppl=deciding.ppl,
        scores=deciding.facts["scores"],
        samples=result.samples,
        **({"sets": [scores.facts for scores in result.sets]} if len(result.sets) > 1 else {}),
        **facts,
    )
    best = "  (best so far)" if facts.get("is_best") else ""
    of_what = "the average of checkpoints" if event == "average" else f"validation at {step:,}"
    say(f"{of_what}: {_in_words(deciding)}{best}")
    for scores in result.sets if len(result.sets) > 1 else []:
        say(f"    {scores.name}: {_in_words(scores)}")
    for src, reference, translation in result.samples:
        say(f"    {src}\n      is   {reference}\n      got  {translation}")
    if run.ranks.is_rank_zero:
        write_report(run.folder, run.config)


def _in_words(result: SetScores) -> str:
    scores = (f"{score.name} {score.value:.2f}" for score in result.scores)
    return "  ".join([f"loss {result.loss:.3f}", f"ppl {result.ppl:.2f}", *scores])


def publish(run: Run, weights: checkpoint.Tensors, score: float | None, loss: float = math.nan) -> bool:
    """Write `weights` as the run's model unless the present model scores better, for example the average that
    an earlier, shorter training published. Returns True if it was written.
    """
    if not run.ranks.is_rank_zero:
        return False
    config, file = run.config, run.folder.weights_file
    # The name holds the settings the score depends on: scores under others are not comparable.
    train, rules = config.train, config.evaluate
    name = f"{train.monitor} of {train.validate_sentences} at equal distances, {rules.tokenize}"
    name += f", lowercase {rules.lowercase}"
    limits, usual = config.decode, DecodeConfig()
    if (limits.max_length, limits.max_length_ratio) != (usual.max_length, usual.max_length_ratio):
        name += f", at most {limits.max_length} pieces, {limits.max_length_ratio} times the source's"
    if not limits.split_sentences:
        name += ", whole lines"
    if len(run.data.valid) > 1:
        name += f", {train.monitor_set} of {', '.join(valid.name for valid in run.data.valid)}"
    facts: dict[str, Any] = {"config": config.name, "step": run.progress.step, "score": {name: score}}
    facts["loss"] = loss if math.isfinite(loss) else None
    try:
        if score is not None and file.exists() and is_better(_published(file, name), (score, loss)):
            return False
        run.folder.calibration_file.unlink(missing_ok=True)  # of the model before
        # Use a single key: the order of several would differ between runs, and so would the file's bytes.
        checkpoint.save_weights(file, weights, {_METADATA_KEY: to_json(facts, sort_keys=True)})
    except CheckpointError as error:
        raise WorkError(f"{error}; {advice_on(error)} and run the same command to resume") from None
    return True


def _published(file: Path, name: str) -> tuple[float, float]:
    """The score and the loss a published model was chosen by; -inf if it has no score under these
    settings.
    """
    score = loss = None
    try:
        facts = checkpoint.metadata(file)
    except CheckpointError as error:
        say(f"{error}; it is replaced")
        return -math.inf, math.nan
    if _METADATA_KEY in facts:
        known = json.loads(facts[_METADATA_KEY])
        score, loss = known.get("score", {}).get(name), known.get("loss")
    return (-math.inf if score is None else float(score), math.nan if loss is None else float(loss))


def finish(run: Run) -> None:
    """Average checkpoints. The average becomes the run's model if it validates at least as well as the best
    checkpoint.
    """
    progress, ranks = run.progress, run.ranks
    # The last update was reached without a validation: max_updates was lowered
    if progress.best_step is None:
        run.saved_step = None  # save this step again: its checkpoint has no score
        validate_and_publish(run)
    assert progress.best_step is not None and progress.best_score is not None
    chosen = f"update {progress.best_step:,}"
    if progress.best_step < progress.step:
        chosen += ", which scored best"
    if not progress.best_step:
        chosen = "the weights that the training began with: no update scored better"
    weights: checkpoint.Tensors = _best_weights(run) if ranks.is_rank_zero else {}
    score, loss = progress.best_score, progress.best_loss
    average, steps = _average(run)
    if average is not None:
        run.load_trained(average, "the average")
        result = _validated(run)
        better = progress.average_is_better(result.score, result.deciding.loss)
        _record(run, result, "average", steps=steps, chosen=better)
        if better:
            weights, score, loss = run.weights(), result.score, result.deciding.loss
            shown = ", ".join(f"{step:,}" for step in steps)
            chosen = f"the average of updates {shown}" if steps else "the moving average of all updates"
    if ranks.is_rank_zero and not publish(run, weights, score, loss):
        chosen = "the model of an earlier training in this folder, which scored better"
    if ranks.is_rank_zero:
        _calibrate(run)
    run.metrics_log.write(
        "end",
        step=progress.step,
        epoch=run.batches.epochs,
        tokens=progress.tokens,
        skipped=progress.skipped,
        seconds=progress.seconds,
        estimated=run.estimate.estimated_seconds,
        joules=run.energy.joules(),
        model=chosen,
    )
    if ranks.is_rank_zero:
        run.drop_checkpoints()  # the last time, a kill may have come before
        write_report(run.folder, run.config)
        facts = {"step": progress.step, "weights": run.folder.weights_digest()}  # for `verify`
        write_text(run.folder.finished_file, f"{to_json(facts)}\n")
    usage = usage_of(run.config, os.path.relpath(run.folder.path))
    say(f"done: {run.folder} holds {chosen}; try: {usage}")


def _average(run: Run) -> tuple[checkpoint.Tensors | None, list[int]]:
    """Returns (weights, steps) of the average of checkpoints, or of the moving average, for which `steps` is
    empty. The weights are None if there is no average. A collective operation.
    """
    ranks = run.ranks
    if run.moving_average is not None:
        return ranks.broadcast_tensors(run.moving_average.weights(ranks.is_rank_zero)), []
    steps = ranks.broadcast(run.averaging.readable_steps(run.progress) if ranks.is_rank_zero else [])
    if len(steps) < 2:
        return None, steps
    files = show_progress(map(run.averaging.file, steps), "averaging", len(steps), unit="checkpoints")
    average = averaged(files, run.config.train, run.folder.frozen_file) if ranks.is_rank_zero else None
    return ranks.broadcast_tensors(average), steps


def _calibrate(run: Run) -> None:
    """Calibrate the confidence of the model in the run's folder."""
    if run.folder.calibration_file.exists():  # the published model did not change and is calibrated
        return
    translated = [valid for valid in run.data.valid if objective_class(valid.objective).translates]
    if not translated:
        return
    translator = Translator.load(run.folder.path, str(run.device))
    most = run.config.train.validate_sentences
    sets = [
        (translator.for_set(one.languages), evenly_spaced(one.sentences, most), one.tag) for one in translated
    ]
    sources: dict[str, list[str]] = {}
    for one in translated:
        sources.setdefault(one.languages[0], []).extend(src for src, _ in one.sentences)
    place = run.batches.state_dict()
    trained = run.data.some_sources(run.config, place["epoch"], place.get("window", 0))
    familiarity = fit_familiarity(run.data.tokenizer, trained, sources)
    if fit := calibrate(sets, run.config.evaluate, familiarity):
        fit.save(run.folder)


def _best_weights(run: Run) -> dict[str, Tensor]:
    try:
        path = run.folder.checkpoints / f"step-{run.progress.best_step:08d}"
        trained = checkpoint.load(path).tensors["model"]
        if not is_partial(run.config.train):
            return trained
        return whole({**checkpoint.load_weights(run.folder.frozen_file), **trained}, run.config.train)
    except CheckpointError as error:
        say(f"{error}; keeping the model that the run has published")
        return run.folder.weights()
