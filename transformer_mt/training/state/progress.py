"""Counters of a run, saved in its checkpoints."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from transformer_mt.training.update.step import UpdateResult

MAX_SKIPS = 10


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
    best_step: int | None = None
    best_score: float | None = None
    """The score of the validation at best_step; larger is better (BLEU, or minus the loss)."""
    stale: int = 0
    """Validations since the best."""
    scores: list[tuple[int, float]] = field(default_factory=list)
    """(step, score) of each validation."""
    resized_at_step: int = 0
    resized_at_epoch: float = 0.0
    """Where the run was last resumed with another number of batches per update."""
    window: LogWindow = field(default_factory=LogWindow)

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
        self.window.loss += result.loss
        self.window.nll += result.nll
        self.window.tokens += result.num_tokens
        self.window.updates += 1
        self.window.grad_norm += result.grad_norm

    def validated(self, score: float) -> bool:
        """Add the score of a validation; True if it is a new best."""
        self.scores.append((self.step, score))
        if self.best_score is None or score > self.best_score:
            self.best_step, self.best_score, self.stale = self.step, score, 0
            return True
        self.stale += 1
        return False

    def reset_scores(self) -> None:
        """Forget all scores: the next validation becomes the best."""
        self.best_step, self.best_score, self.stale, self.scores = None, None, 0, []

    def best_steps(self) -> set[int]:
        """The steps whose validation was better than all before it."""
        best, steps = -math.inf, set()
        for step, score in self.scores:
            if score > best:
                best = score
                steps.add(step)
        return steps

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self.window = LogWindow(**state["window"])
        self.scores = [(step, score) for step, score in state["scores"]]
