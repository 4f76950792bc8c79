"""The facts that the curves of a training show beyond doubt, in a sentence or two."""

import math
from collections.abc import Sequence
from typing import Any

from transformer_mt.config import Config, TrainConfig


def diagnosis(config: Config, entries: Sequence[dict[str, Any]]) -> str:
    """That the parent was never improved on, that the validation loss still fell at the end, or that it rose
    while the training loss fell; empty where the entries of metrics.jsonl show none of these.
    """
    trained = [entry for entry in entries if entry["event"] == "train"]
    valid = [entry for entry in entries if entry["event"] == "valid" and math.isfinite(entry["loss"])]
    averages = [entry for entry in entries if entry["event"] == "average"]
    ends = [entry for entry in entries if entry["event"] == "end"]
    if not ends or len(valid) < 2:
        return ""
    best = next((entry for entry in reversed(valid) if entry["is_best"]), valid[-1])
    if best["step"] == 0 and not (averages and averages[-1].get("chosen")):
        score = f"{best['scores'][0]['name']}, {best['scores'][0]['value']:.2f}"
        if config.train.monitor == "loss":
            score = f"validation loss, {best['loss']:.3f}"
        return (
            f"Fine-tuning did not help: the parent model has the best {score}. "
            f"Try a lower train.learning_rate ({config.train.learning_rate:g}), a longer train.warmup "
            f"({config.train.warmup:,}) or more pairs."
        )
    since_best = len(valid) - 1 - valid.index(best)
    stale = valid[-1].get("stale", since_best) >= config.train.patience
    lowest, last = min(valid, key=lambda entry: entry["loss"]), valid[-1]
    if last["loss"] < min(entry["loss"] for entry in valid[:-1]):
        return (
            f"The validation loss still fell at the end, from {valid[-2]['loss']:.3f} to {last['loss']:.3f}. "
            f"To train longer, raise {what_to_raise(config.train, ends[-1]['step'], stale)}."
        )
    losses = [math.log(entry["ppl"]) for entry in trained if entry["step"] >= lowest["step"]]
    if len(losses) > 1 and losses[-1] < losses[0]:
        return (
            f"The model overfits: since update {lowest['step']:,} the validation loss rose from "
            f"{lowest['loss']:.3f} to {last['loss']:.3f} while the training loss fell from "
            f"{losses[0]:.3f} to {losses[-1]:.3f}. More data, a higher model.dropout "
            f"({config.model.dropout:g}) or a smaller model may help."
        )
    return ""


def what_to_raise(train: TrainConfig, end_step: int, ended_by_patience: bool) -> str:
    """The key to raise, and whether the training can be resumed then."""
    resume = "and run the same command to resume"
    if train.schedule in ("cosine", "linear"):
        resume = "and start over, as the schedule ends with it"
    if end_step < train.max_updates and train.patience and ended_by_patience:
        return f"train.patience ({train.patience}) and run the same command to resume"
    if train.max_epochs:
        return f"train.max_epochs ({train.max_epochs:g}), and train.max_updates if it is less, {resume}"
    return f"train.max_updates ({train.max_updates:,}) {resume}"
