"""The answers of a language model, kept one by one as they come, and never paid for twice."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from transformer_mt.companions.teacher.teacher_section import LanguageModelConfig
from transformer_mt.errors import InputError

_TABLE = (
    "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answers TEXT, requests REAL, "
    "prompt_tokens REAL, answer_tokens REAL, time TEXT) WITHOUT ROWID"
)
_COSTS = "total(requests), total(prompt_tokens), total(answer_tokens)"


class Answer(NamedTuple):
    """The translation of a line."""

    text: str
    reason: str | None = None
    """Why it is nothing to learn from."""


@dataclass(frozen=True)
class Cost:
    """The cost of answers; a line has its share of a request."""

    requests: float = 0.0
    prompt_tokens: float = 0.0
    answer_tokens: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other))))

    def __mul__(self, factor: float) -> "Cost":
        return Cost(*(factor * value for value in astuple(self)))

    @property
    def tokens(self) -> float:
        return self.prompt_tokens + self.answer_tokens

    def money(self, settings: LanguageModelConfig) -> float:
        """0 without a price."""
        price = settings.price
        tokens = self.prompt_tokens, self.answer_tokens
        return (tokens[0] * price.input + tokens[1] * price.output) / 1e6 if price else 0.0

    def over(self, settings: LanguageModelConfig) -> str | None:
        """The key of a limit that this is above."""
        used = {"requests": self.requests, "tokens": self.tokens, "money": self.money(settings)}
        limits = {name: getattr(settings.limit, name) for name in used}
        return next((f"limit.{name}" for name, most in limits.items() if most and used[name] > most), None)


class Answers:
    """A file of answers."""

    def __init__(self, file: Path) -> None:
        """InputError if the file cannot be written, or another process has it."""
        self.file, self._rows = file, _connected(file.resolve())

    def get(self, key: str) -> list[Answer]:
        """The answers for a line; none if it was never asked for."""
        row = self._one("SELECT answers FROM answers WHERE key = ?", key)
        return [Answer(*answer) for answer in json.loads(row[0])] if row else []

    def put(self, key: str, answers: Sequence[Answer], cost: Cost) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        values = (key, json.dumps(answers, ensure_ascii=False), *astuple(cost), now)
        self._rows.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?)", values)

    def spent(self) -> Cost:
        """The cost of all answers."""
        return Cost(*self._one(f"SELECT {_COSTS} FROM answers"))

    def of(self, keys: Iterable[str]) -> tuple[Cost, str | None, str | None]:
        """The cost of the answers with these keys, and the times of the first and the last."""
        self._rows.execute("CREATE TEMP TABLE chosen (key TEXT PRIMARY KEY)")
        self._rows.executemany("INSERT OR IGNORE INTO chosen VALUES (?)", ((key,) for key in keys))
        row = self._one(f"SELECT {_COSTS}, min(time), max(time) FROM answers NATURAL JOIN chosen")
        self._rows.execute("DROP TABLE chosen")
        return Cost(*row[:3]), row[3], row[4]

    def _one(self, query: str, *values: str) -> Any:
        return self._rows.execute(query, values).fetchone()


@cache
def _connected(file: Path) -> sqlite3.Connection:
    """The file for this process alone, so that two cannot spend one limit. Each answer is written at once."""
    try:
        rows = sqlite3.connect(file, timeout=0.0, isolation_level=None)
        for command in ("PRAGMA locking_mode = EXCLUSIVE", "PRAGMA journal_mode = WAL", _TABLE):
            rows.execute(command)
    except sqlite3.Error as error:
        raise InputError(
            f"{file}: must be a file of answers that no other command uses and that can be written, but: "
            f"{error}"
        ) from None
    return rows
