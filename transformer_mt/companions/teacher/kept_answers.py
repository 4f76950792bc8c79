"""The answers of a language model and what they cost, kept as they come and never paid for twice."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from transformer_mt.companions.teacher.teacher_section import Limit, Price
from transformer_mt.errors import WorkError

_BEGIN = (
    "PRAGMA locking_mode = EXCLUSIVE",  # so that two commands cannot spend one limit
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",  # a killed process loses nothing
    "CREATE TABLE IF NOT EXISTS requests (id INTEGER PRIMARY KEY, endpoint TEXT, prompt_tokens INT, "
    "answer_tokens INT, money REAL, time TEXT)",
    "CREATE TABLE IF NOT EXISTS answers (line TEXT, request INT, text TEXT, reason TEXT)",
    "CREATE INDEX IF NOT EXISTS of_line ON answers (line)",
)
_COST = "count(*), total(prompt_tokens), total(answer_tokens), total(money)"


class Answer(NamedTuple):
    """The translation of a line, or the reason why there is none."""

    text: str
    reason: str | None = None


@dataclass(frozen=True)
class Cost:
    """The cost of requests."""

    requests: float = 0.0
    prompt_tokens: float = 0.0
    answer_tokens: float = 0.0
    money: float = 0.0

    @classmethod
    def of(cls, requests: float, prompt_tokens: float, answer_tokens: float, price: Price | None) -> "Cost":
        money = (prompt_tokens * price.input + answer_tokens * price.output) / 1e6 if price else 0.0
        return cls(requests, prompt_tokens, answer_tokens, money)

    @property
    def tokens(self) -> float:
        return self.prompt_tokens + self.answer_tokens

    def plus(self, other: "Cost", times: float = 1) -> "Cost":
        return Cost(*(a + times * b for a, b in zip(vars(self).values(), vars(other).values())))

    def over(self, limit: Limit) -> str | None:
        """The key of the limit that this is above; of several the one that it is farthest above, which is
        reached first.
        """
        limits = {"requests": limit.requests, "tokens": limit.tokens, "money": limit.money}
        shares = {
            name: getattr(self, name) / max(most, 1e-9)
            for name, most in limits.items()
            if most is not None and getattr(self, name) > most
        }
        return f"teacher.limit.{max(shares, key=shares.__getitem__)}" if shares else None


class Answers:
    """A file of answers, which one process has at a time. WorkError if it cannot be used."""

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._rows = sqlite3.connect(file, timeout=0.0)
        except sqlite3.Error as error:
            raise self._error(error) from None
        for command in _BEGIN:
            self._run(command)
        self.spent = Cost(*next(self._run(f"SELECT {_COST} FROM requests")))
        """The cost of all requests."""

    def close(self) -> None:
        self._rows.close()

    def of(self, line: str) -> list[Answer]:
        """The answers for a line, in the order in which they came; none if it was never asked for."""
        rows = self._run("SELECT text, reason FROM answers WHERE line = ? ORDER BY rowid", line)
        return [Answer(*row) for row in rows]

    def put(self, answers: Mapping[str, Answer], endpoint: str, cost: Cost) -> None:
        """Keep a request with the answers that it brought, all or nothing."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        values = endpoint, round(cost.prompt_tokens), round(cost.answer_tokens), cost.money, now
        number = self._run("INSERT INTO requests VALUES (NULL, ?, ?, ?, ?, ?)", *values).lastrowid
        for line, answer in answers.items():
            self._run("INSERT INTO answers VALUES (?, ?, ?, ?)", line, number, *answer)
        self._run("COMMIT")
        self.spent = self.spent.plus(cost)

    def give_up(self, lines: Iterable[str], answer: Answer) -> None:
        """Keep an answer that no request brought."""
        for line in lines:
            self._run("INSERT INTO answers VALUES (?, NULL, ?, ?)", line, *answer)
        self._run("COMMIT")

    def forget(self, reason: str) -> None:
        """Forget the answers with this reason."""
        self._run("DELETE FROM answers WHERE reason = ?", reason)
        self._run("COMMIT")

    def receipt(self, lines: Iterable[str], price: Price | None) -> dict[str, Any]:
        """The cost of the requests that brought answers for these lines, with their servers and dates."""
        self._run("CREATE TEMP TABLE chosen (line TEXT PRIMARY KEY)")
        for line in lines:
            self._run("INSERT OR IGNORE INTO chosen VALUES (?)", line)
        of_lines = "FROM requests WHERE id IN (SELECT request FROM answers NATURAL JOIN chosen)"
        columns = f"json_group_array(DISTINCT endpoint), min(time), max(time), {_COST}"
        (row,) = list(self._run(f"SELECT {columns} {of_lines}"))
        names = "endpoints", "first", "last", "requests", "prompt_tokens", "answer_tokens", "money"
        facts = dict(zip(names, (json.loads(row[0]), *row[1:])))
        return {**facts, "money": round(facts["money"], 6) if price else None}

    def _run(self, command: str, *values: object) -> sqlite3.Cursor:
        try:
            return self._rows.execute(command, values)
        except sqlite3.Error as error:
            raise self._error(error) from None

    def _error(self, error: sqlite3.Error) -> WorkError:
        is_taken = "locked" in str(error)
        what = "must be free, but another command uses it" if is_taken else f"cannot be used: {error}"
        return WorkError(f"{self._file}: {what}")
