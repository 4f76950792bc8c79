"""What the curves of a training say, and what to try next, in two sentences."""

import math
from collections.abc import Sequence
from statistics import mean
from typing import Any

from transformer_mt.config import Config, TrainConfig

_LEAST_VALIDATIONS = 3
_ROSE = 0.7  # nats per token, from the lowest to the last training loss: diverged
_LEARNED_LITTLE = 0.55  # of the first training loss
_FALLS_FAST, _FALLS = 0.5, 0.05  # nats per token, in the last third of the updates
_OVERFITS = 0.02  # of the validation loss
_LOSS_STANDS_STILL = 0.02  # nats per token, in the last third of the validations
_SCORE_STANDS_STILL = 0.01  # of the largest score


def diagnosis(config: Config, entries: Sequence[dict[str, Any]]) -> str:
    """Two sentences on the entries of metrics.jsonl; empty before the end of a training."""
    trained = [entry for entry in entries if entry["event"] == "train"]
    valid = [entry for entry in entries if entry["event"] == "valid"]
    ends = [entry for entry in entries if entry["event"] == "end"]
    if not trained or not valid or not ends:
        return ""
    losses = [math.log(entry["ppl"]) for entry in trained]
    rate = f"train.learning_rate ({config.train.learning_rate:g})"
    if _has_diverged(losses):
        return (
            f"The training diverged: its loss rose from {_lowest(losses):.2f} to {losses[-1]:.2f}. Start "
            f"over with a third of {rate} or a longer train.warmup."
        )
    fell = _fall(losses)
    if not config.init_from and mean(losses[-3:]) > _LEARNED_LITTLE * losses[0] and fell < _FALLS_FAST:
        if _patience_ended(config.train, valid, ends[-1]["step"]) and _still_fell(valid):
            return _impatient(config.train, valid, ends[-1]["step"])
        return _learned_little(config.train, trained[-1]["step"], losses, fell, rate)
    names = {entry["scores"][0]["name"] for entry in valid}
    if len(names) > 1 or not all(math.isfinite(entry["loss"]) for entry in valid):
        return ""  # another metric is monitored since a resumption, or no validation pair fits a batch
    if len(valid) < _LEAST_VALIDATIONS:
        return (
            f"There are too few validations ({len(valid)}) to say how the training went. Lower "
            f"train.validate_every ({config.train.validate_every:,})."
        )
    if valid[0]["step"] == 0 and _best_of(valid) is valid[0] and not _average_was_chosen(entries):
        return _parent_is_best(config.train, valid[0])
    return _of_validations(config, trained, losses, valid, ends[-1]["step"])


def _has_diverged(losses: Sequence[float]) -> bool:
    if not math.isfinite(losses[-1]):
        return True
    return mean(losses[-3:]) > _lowest(losses) + _ROSE


def _lowest(losses: Sequence[float]) -> float:
    return min((loss for loss in losses if math.isfinite(loss)), default=math.nan)


def _fall(losses: Sequence[float]) -> float:
    """By how much the loss fell in the last third, means of some values at both ends."""
    third = losses[-max(2, len(losses) // 3) :]
    ends = max(1, len(third) // 3)
    return mean(third[:ends]) - mean(third[-ends:])


def _impatient(train: TrainConfig, valid: Sequence[dict[str, Any]], end_step: int) -> str:
    best, last = _best_of(valid)["loss"], valid[-1]["loss"]
    return (
        f"train.patience ({train.patience}) ended the training at update {end_step:,} of "
        f"{train.max_updates:,}, "
        f"but the validation loss still fell, from {best:.2f} to {last:.2f}. Raise it and run the same "
        "command "
        "to resume."
    )


def _learned_little(train: TrainConfig, step: int, losses: Sequence[float], fell: float, rate: str) -> str:
    little = f"Little was learned: the training loss went from {losses[0]:.2f} to {losses[-1]:.2f} "
    if step <= train.warmup:
        return (
            f"{little}while the learning rate still rose. Train longer, or shorten train.warmup "
            f"({train.warmup:,})."
        )
    if fell > _FALLS:
        return f"{little}and falls slowly, so the learning rate is too low. Try three times {rate}."
    return f"{little}and falls no more, so the learning rate is too high. Try a third of {rate}."


def _of_validations(
    config: Config,
    trained: Sequence[dict[str, Any]],
    losses: Sequence[float],
    valid: Sequence[dict[str, Any]],
    end_step: int,
) -> str:
    ended_early = _patience_ended(config.train, valid, end_step)
    best_loss = min(valid, key=lambda entry: entry["loss"])
    best = _best_of(valid)
    name = best["scores"][0]["name"]
    then = [loss for entry, loss in zip(trained, losses) if entry["step"] <= best_loss["step"]]
    risen = valid[-1]["loss"] / max(best_loss["loss"], 1e-9) - 1
    if risen > _OVERFITS and then and losses[-1] < then[-1]:
        by = f" (train.patience ({config.train.patience}) ended the training)" if ended_early else ""
        still = f", though {name} was best at the end" if best is valid[-1] else ""
        return (
            f"The model overfits{by}: since update {best_loss['step']:,} the validation loss rose by "
            f"{risen:.0%} "
            f"while the training loss fell{still}. Try more data, a higher {_regularisers(config)}, or a "
            "smaller model."
        )
    earlier = valid[: -max(1, len(valid) // 3)]
    fell = earlier[-1]["loss"] - valid[-1]["loss"]
    most = max(abs(entry["scores"][0]["value"]) for entry in valid)
    gained = abs(best["scores"][0]["value"] - _best_of(earlier)["scores"][0]["value"]) / max(1.0, most)
    sign = "fell" if fell >= 0 else "rose"
    if fell < _LOSS_STANDS_STILL and (gained < _SCORE_STANDS_STILL or best in earlier):
        by = f"train.patience ({config.train.patience}) ended it, and " if ended_early else ""
        return (
            f"The training has converged: {by}in its last third the validation loss {sign} by "
            f"{abs(fell):.3f} "
            f"and {name} changed by {gained * max(1.0, most):.2f}. A larger model or more data may bring "
            "more, more updates will not."
        )
    resume = _how_to_continue(config.train, ended_early)
    return (
        f"The model still improves: in its last third the validation loss {sign} by {abs(fell):.2f} and "
        f"{name} changed by {gained * max(1.0, most):.2f}. Raise {resume}."
    )


def _parent_is_best(train: TrainConfig, before: dict[str, Any]) -> str:
    score = before["scores"][0]
    return (
        f"Fine-tuning did not help: the parent model has the best {score['name']}, {score['value']:.2f}. Try "
        f"a third of train.learning_rate ({train.learning_rate:g}), a longer train.warmup "
        f"({train.warmup:,}) or more pairs."
    )


def _average_was_chosen(entries: Sequence[dict[str, Any]]) -> bool:
    averages = [entry for entry in entries if entry["event"] == "average"]
    return bool(averages) and bool(averages[-1].get("chosen"))


def _regularisers(config: Config) -> str:
    dropout = f"model.dropout ({config.model.dropout:g})"
    if config.tokenizer.kind != "bpe":
        return dropout
    return f"{dropout} or tokenizer.bpe_dropout ({config.tokenizer.bpe_dropout:g})"


def _patience_ended(train: TrainConfig, valid: Sequence[dict[str, Any]], end_step: int) -> bool:
    """Whether the training ended before max_updates because no validation was a new best. One that max_epochs
    ended has fewer updates, too.
    """
    since_best = len(valid) - 1 - valid.index(_best_of(valid))
    return 0 < train.patience <= valid[-1].get("stale", since_best) and end_step < train.max_updates


def _still_fell(valid: Sequence[dict[str, Any]]) -> bool:
    """Whether the last validation has the lowest loss, by more than noise."""
    best, last = _best_of(valid)["loss"], valid[-1]["loss"]
    return last <= min(entry["loss"] for entry in valid) and last < best - _LOSS_STANDS_STILL


def _how_to_continue(train: TrainConfig, ended_early: bool) -> str:
    """The key that ended the training, and whether the training can be resumed."""
    resume = "and run the same command to resume"
    if ended_early:
        return f"train.patience ({train.patience}) {resume}"
    if train.schedule in ("cosine", "linear"):
        resume = "and start over, as the schedule ends with it"
    if train.max_epochs:
        return f"train.max_epochs ({train.max_epochs:g}), and train.max_updates if it is less, {resume}"
    return f"train.max_updates ({train.max_updates:,}) {resume}"


def _best_of(valid: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The newest best; the last one where metrics.jsonl has lost it."""
    return next((entry for entry in reversed(valid) if entry["is_best"]), valid[-1])
