"""Validations, and the model they choose for the run's folder: the best so far, at the end the average."""

import json
import math
import os
from pathlib import Path
from typing import Any

from torch import Tensor

from transformer_mt import checkpoint
from transformer_mt.checkpoint import CheckpointError
from transformer_mt.config import DecodeConfig
from transformer_mt.corpora.evaluation_sets import evenly_spaced
from transformer_mt.errors import WorkError
from transformer_mt.evaluation.calibration import calibrate, fit_familiarity
from transformer_mt.files import to_json, write_text
from transformer_mt.messages import say
from transformer_mt.progress_bar import show_progress
from transformer_mt.runs.usage import usage_of
from transformer_mt.training.divergence import check_validations, check_weights, diverged, is_out_of_bounds
from transformer_mt.training.reporting.run_report import write_report
from transformer_mt.training.state.progress import is_better
from transformer_mt.training.state.run import Run
from transformer_mt.training.update.adaptation import averaged, is_partial, whole
from transformer_mt.training.validate import NotFinite, SetScores, Validation, validate
from transformer_mt.translation.translator import Translator

_METADATA_KEY = "transformer_mt"


def validate_and_publish(run: Run) -> None:
    """Validate; a new best becomes the run's model, and is saved."""
    config, progress = run.config, run.progress
    result = _validated(run)
    # A parent may be as bad, on new data; it is what this training is compared with.
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
        # One key: the order of several differs from run to run, and with it the bytes of the file.
        checkpoint.save_weights(file, weights, {_METADATA_KEY: to_json(facts, sort_keys=True)})
    except CheckpointError as error:
        raise WorkError(f"{error}; free some space and run the same command to resume") from None
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
    """Average checkpoints; the run's model is the average if it validates at least as well as the best single
    one.
    """
    progress, ranks = run.progress, run.ranks
    # The last update was reached without a validation: max_updates was lowered
    if progress.best_step is None:
        run.saved_step = None  # save this step again: its checkpoint has no score
        validate_and_publish(run)
    assert progress.best_step is not None and progress.best_score is not None
    chosen = f"update {progress.best_step:,}"
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
        estimated=run.estimate.of_updates,
        model=chosen,
    )
    if ranks.is_rank_zero:
        write_report(run.folder, run.config)
        write_text(run.folder.finished_file, f'{{"step": {progress.step}}}\n')
    usage = usage_of(run.config, os.path.relpath(run.folder.path))
    say(f"done: {run.folder} holds {chosen}; try: {usage}")


def _average(run: Run) -> tuple[checkpoint.Tensors | None, list[int]]:
    """(weights, steps): the average of the checkpoints with their steps, or the moving average without. The
    weights are None if there is no average. A collective operation.
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
    translated = [valid for valid in run.data.valid if valid.objective == "translation"]
    if not translated:
        return
    valid = translated[0]
    translator = Translator.load(run.folder.path, str(run.device)).for_set(valid.languages)
    sentences = evenly_spaced(valid.sentences, run.config.train.validate_sentences)
    sources: dict[str, list[str]] = {}
    for one in translated:
        sources.setdefault(one.languages[0], []).extend(src for src, _ in one.sentences)
    place = run.batches.state_dict()
    trained = run.data.some_sources(run.config, place["epoch"], place.get("window", 0))
    familiarity = fit_familiarity(run.data.tokenizer, trained, sources)
    if fit := calibrate(translator, sentences, run.config.evaluate, valid.tag, familiarity):
        fit.save(run.folder)


def _best_weights(run: Run) -> dict[str, Tensor]:
    try:
        path = run.folder.checkpoints / f"step-{run.progress.best_step:08d}"
        trained = checkpoint.load(path).tensors["model"]
        if not is_partial(run.config.train):
            return trained
        return whole({**checkpoint.load_weights(run.folder.frozen_file), **trained}, run.config.train)
    except CheckpointError as error:
        say(f"{error}; keeping the model published when it was the best")
        return run.folder.weights()
