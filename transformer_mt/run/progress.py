"""Counters of a run, saved in its checkpoints: updates, the best validation, and when patience ends."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from transformer_mt.update.step import UpdateResult

MAX_SKIPS = 10
_NEARLY_EQUAL = 0.1
"""Scores that differ by less than this (on a scale of 100) are nearly equal: the validation loss decides."""


# Scores from 0 to this are treated as equal: the model has learnt nothing yet.
_CHANCE = 1.0


@dataclass
class LogWindow:
    """Sums since the last line of the log."""

    loss: float = 0.0
    nll: float = 0.0
    tokens: int = 0
    updates: int = 0
    grad_norm: float = 0.0
    seconds: float = 0.0

    def summary(self) -> dict[str, float]:
        """Loss and perplexity per target token, mean gradient norm, real target tokens a second."""
        if not self.updates:  # all of them were skipped
            return {"loss": math.nan, "ppl": math.nan, "grad_norm": math.nan, "tokens_per_second": 0.0}
        tokens, updates = self.tokens, self.updates
        return {
            "loss": self.loss / tokens,
            "ppl": math.exp(min(100.0, self.nll / tokens)),
            "grad_norm": self.grad_norm / updates,
            "tokens_per_second": self.tokens / self.seconds if self.seconds else 0.0,
        }


@dataclass
class Progress:
    """The counters."""

    step: int = 0
    """Updates begun."""
    tokens: int = 0
    """Real target tokens trained on."""
    seconds: float = 0.0
    """Time spent in updates, over all sessions."""
    skipped: int = 0
    """Updates skipped because the gradient was not finite."""
    skipped_in_a_row: int = 0
    first_nll: float = 0.0
    """Nats per target token of the first update that was not skipped."""
    train_nll: float = 0.0
    """Nats per target token of the last update that was not skipped."""
    best_step: int | None = None
    best_score: float | None = None
    """The score of the validation at best_step; larger is better (BLEU, or minus the loss)."""
    best_loss: float = math.nan
    """The loss of that validation."""
    top_score: float = -math.inf
    """The highest score of any validation that was the best at its time. best_score may be slightly lower
    than this if its validation had a lower loss.
    """
    stale: int = 0
    """Validations since the best; those in the warm-up do not count."""
    scores: list[tuple[int, float, float, bool]] = field(default_factory=list)
    """(step, score, loss, whether it was the best so far) of each validation."""
    resized_at_step: int = 0
    resized_at_epoch: float = 0.0
    """Where the run was last resumed with another number of batches per update."""
    window: LogWindow = field(default_factory=LogWindow)

    def is_out_of_patience(self, patience: int) -> bool:
        """True after `train.patience` validations without a new best; never if it is 0."""
        return 0 < patience <= self.stale

    def spend(self, seconds: float) -> None:
        """Add the time of some updates."""
        self.seconds += seconds
        self.window.seconds += seconds

    def count(self, result: UpdateResult) -> None:
        """Add the result of one update; `step` was increased when it began."""
        if result.skipped:
            self.skipped += 1
            self.skipped_in_a_row += 1
            return
        self.skipped_in_a_row = 0
        self.tokens += result.num_tokens
        self.train_nll = result.nll / result.num_tokens
        self.first_nll = self.first_nll or self.train_nll
        self.window.loss += result.loss
        self.window.nll += result.nll
        self.window.tokens += result.num_tokens
        self.window.updates += 1
        self.window.grad_norm += result.grad_norm

    def validated(
        self, score: float, loss: float = math.nan, warmup: int = 0, may_be_best: bool = True
    ) -> bool:
        """Add a validation; True if it is a new best. In the first `warmup` updates it uses up no
        patience.
        """
        is_best = may_be_best and (self.best_score is None or self._is_better(score, loss))
        self.scores.append((self.step, score, loss, is_best))
        if is_best:
            self.best_step, self.best_score, self.best_loss, self.stale = self.step, score, loss, 0
            self.top_score = max(self.top_score, score)
        elif self.step > warmup:
            self.stale += 1
        return is_best

    def average_is_better(self, score: float, loss: float) -> bool:
        """True if an average of checkpoints with this score is at least as good as the best of them."""
        return self._is_better(score, loss) or (score, loss) == (self.best_score, self.best_loss)

    def _is_better(self, score: float, loss: float) -> bool:
        return is_better((score, loss), (self.top_score, self.best_loss))

    @property
    def loss_still_falls(self) -> bool:
        """True if the last validation has the lowest loss."""
        return bool(self.scores) and self.scores[-1][2] <= min(loss for _, _, loss, _ in self.scores)

    def reset_scores(self) -> None:
        """Forget all scores: the next validation becomes the best."""
        self.best_step, self.best_score, self.best_loss, self.top_score = None, None, math.nan, -math.inf
        self.stale, self.scores = 0, []

    def best_steps(self) -> set[int]:
        """The steps whose validation was better than all before it."""
        return {step for step, _, _, is_best in self.scores if is_best}

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self.window = LogWindow(**state["window"])
        self.scores = [(step, score, loss, is_best) for step, score, loss, is_best in state["scores"]]


def is_better(new: tuple[float, float], old: tuple[float, float]) -> bool:
    """True if the (score, loss) `new` is better than `old`. If the scores are nearly equal, the loss decides:
    BLEU stays 0 for a long time at the beginning, and later it changes from one validation to the next by
    more than the model does.
    """
    (score, loss), (other, other_loss) = new, old
    if not (math.isfinite(loss) and math.isfinite(other_loss)):
        return score > other
    difference = _at_least_chance(score) - _at_least_chance(other)
    return difference > _NEARLY_EQUAL or (difference >= -_NEARLY_EQUAL and loss < other_loss)


def _at_least_chance(score: float) -> float:
    return _CHANCE if 0 <= score < _CHANCE else score
