"""The answers of a language model: kept as they come, never paid for twice, and checked before they teach."""

import json
import re
import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from transformer_mt.companions.teacher.prompt import Answer, Check, Limit, Price
from transformer_mt.data.cleaning_rules import CopyRule, NumbersRule, ScriptRule
from transformer_mt.errors import WorkError
from transformer_mt.messages import say
from transformer_mt.text.languages import LanguageIdentifier, script_share
from transformer_mt.text.sentences import find_words
from transformer_mt.translation.stages.text_stages import text_flags

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
        """The key of the limit that this cost exceeds; None if it exceeds none. If there are several, the one
        that it exceeds by the largest factor, which is reached first.
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
        try:
            for command in _BEGIN:
                self._run(command)
            self.spent = Cost(*next(self._run(f"SELECT {_COST} FROM requests")))
        except WorkError:
            self.close()  # else the file would stay locked as long as the error is kept
            raise
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


# Assistants who refuse or speak of their answer. "I'm sorry." and "Of course." can be translations.
_ASSISTANT = re.compile(
    r".{0,40}\bas an? (ai|artificial|(large )?language model|assistant)\b|"
    r".{0,40}\b(can(no|’|')t|can not|unable to|won(’|')t) (translate|assist|provide|comply|help with)\b|"
    r"(sure|certainly|of course|okay|here)\b.{0,40}\btranslat(ion|ed)\b|"
    r".*(\(note: |\bhope (this|that) helps\b|\blet me know if\b)",
    re.IGNORECASE,
)
# A note or another version that the source has not: in brackets, or after a slash between words.
_ADDED = {"[(【〔]": "[(【〔]", r"[^\W\d_]{3}\s*/\s*[^\W\d_]{3}|\s/\s": "/"}
_LABEL = re.compile(r"\[|(\S+\s){0,5}\S+:\s+[^\"“„«「『'‘]|\d+[.)]\s")
_MARKUP = re.compile(r"</?[A-Za-z][\w:-]*(?=[^<>]*>)|<!--|\{\{|\}\}|\[\[|\]\]|\$\{|\*\*|```|^#+ |<\||^\{\"")
_OPEN, _CLOSE = "\"“„«‹'‘「『", "\"”“»›'’」』"
_RATIO, _MORE = (
    4,
    20,
)  # in bytes of UTF-8: a Chinese character has three, and stands for about as many letters


def _plain(text: str) -> str:
    """The text with wide brackets and slashes replaced by the usual ones, and colons of other scripts, which
    need no space after them, replaced by a colon and a space.
    """
    if text.isascii():
        return text
    plain = (unicodedata.normalize("NFKC", letter) if _WIDE.match(letter) else letter for letter in text)
    return "".join(": " if letter not in ":;" and _is_colon(letter) else letter for letter in plain)


_WIDE = re.compile("[\uff08\uff3b\uff5b\uff0f\ufe59\ufe5b\ufe5d]")


def _is_colon(letter: str) -> bool:
    name = unicodedata.name(letter, "")
    return "COLON" in name and "SEMICOLON" not in name and "SIGN" not in name


class SameAnswers:
    """Finds answers that are the same for very different lines. These are not translations but refusals or
    questions, in whatever language.
    """

    def __init__(self) -> None:
        self._sources: dict[str, frozenset[str]] = {}
        """The words of the first line that got each answer."""
        self._found: set[str] = set()

    def add(self, source: str, answer: str) -> None:
        """Count an answer to a line."""
        words = _words(source)
        if len(words) < _LEAST_WORDS:  # short lines that are unlike can mean the same: "Hi." and "Hello."
            return
        before = self._sources.setdefault(answer.strip().casefold(), words)
        if len(before & words) < _ALIKE * min(len(before), len(words)):
            self._found.add(answer.strip().casefold())

    def __contains__(self, answer: str) -> bool:
        return answer.strip().casefold() in self._found


_LEAST_WORDS, _ALIKE = 4, 0.5


def _words(text: str) -> frozenset[str]:
    """The words of a text; in a script without spaces its characters."""
    return frozenset(text[begin:end].casefold() for begin, end in find_words(text) if text[begin].isalnum())


def checks_of(chosen: Collection[Check], languages: tuple[str, str]) -> Callable[[str, str], str | None]:
    """A function that returns the name of the first check that a source and its translation fail, or None.
    InputError if an extra is missing.
    """
    target = languages[1]
    identifier = LanguageIdentifier() if "language" in chosen else None
    if identifier and not identifier.knows(target):
        say(f"note: the language of the translations is not checked: py3langid does not know {target}")

    def is_chatter(source: str, translation: str) -> bool:
        """It speaks to the user, or has a label, number, quotes, note or choice that the source has not."""
        if _ASSISTANT.match(translation) and not _ASSISTANT.match(source):
            return True
        if translation[0] in _OPEN and translation[-1] in _CLOSE:
            return source[0] not in _OPEN and source[-1] not in _CLOSE
        source, translation = _plain(source), _plain(translation)
        if any(re.search(new, translation) and not re.search(old, source) for new, old in _ADDED.items()):
            return True
        return bool(_LABEL.match(translation)) and not re.search(r"[:;]|^[\d\[]", source)

    def is_copy(source: str, translation: str) -> bool:
        """It is the source, or has all of it."""
        has_all = source.count(" ") > 1 and source.casefold() in translation.casefold()
        return has_all or CopyRule().drops(source, translation)

    def is_other_language(source: str, translation: str) -> bool:
        return bool(identifier and identifier.knows(target) and identifier.is_other(translation, target))

    def is_much_longer(source: str, translation: str) -> bool:
        shorter, longer = sorted(len(text.encode()) for text in (source, translation))
        says_nothing = any(map(str.isalpha, source)) and not any(map(str.isalpha, translation))
        return longer > _RATIO * shorter + _MORE or says_nothing

    def has_other_markup(source: str, translation: str) -> bool:
        return Counter(_MARKUP.findall(source)) != Counter(_MARKUP.findall(translation))

    def repeats(source: str, translation: str) -> bool:
        words, half = translation.split(), len(translation.split()) // 2
        is_twice = (
            half > 1 and words[:half] == words[half:] and source.split()[:half] != source.split()[half:]
        )
        return is_twice or "repeating" in text_flags(source, translation, len(words), words)

    def is_other_script(source: str, translation: str) -> bool:
        share = script_share(translation, target)
        return share is not None and share < ScriptRule.LEAST

    fails: dict[Check, Callable[[str, str], bool]] = {
        "chatter": is_chatter, "copy": is_copy, "language": is_other_language,
        "length": is_much_longer, "markup": has_other_markup, "numbers": NumbersRule().drops,
        "repeating": repeats, "script": is_other_script,
    }  # fmt: skip
    return lambda source, translation: next((c for c in chosen if fails[c](source, translation)), None)
