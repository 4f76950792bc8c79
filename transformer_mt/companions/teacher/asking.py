"""Asking for lines until each has its answers: tries, second questions, limits."""

import asyncio
import json
import math
import random
from collections.abc import Sequence
from contextlib import suppress

from transformer_mt.companions.teacher.answer_checks import SameAnswers, checks_of
from transformer_mt.companions.teacher.chat import NO_ANSWER, NOT_TAKEN, Chat, Reply
from transformer_mt.companions.teacher.kept_answers import Answer, Answers, Cost
from transformer_mt.companions.teacher.prompt import Prompt
from transformer_mt.companions.teacher.teacher_section import LanguageModelConfig
from transformer_mt.errors import InputError, UserError, WorkError
from transformer_mt.messages import duration, say, show_progress
from transformer_mt.text.hashes import text_key

_TRIES, _MOST_WAIT = 7, 600.0
_BYTES_OF_TOKEN = 4
_PROBE = "Answer with one word: yes."


class Asking:
    """The questions to one model about lines in one direction."""

    answers: Answers
    """The file of answers, once it is open."""

    def __init__(self, settings: LanguageModelConfig, languages: tuple[str, str]) -> None:
        """InputError for a key, an extra or a glossary that is missing."""
        self._settings, self._chat = settings, Chat(settings)
        self.prompt = Prompt(settings, languages)
        self._failed_check = checks_of(settings.checks, languages)
        facts = [settings.model, self.prompt.texts, settings.parameters, settings.candidates, *languages]
        self.fact = json.dumps(facts, sort_keys=True)
        """Everything that the answers depend on, but the terms of the line."""
        self._same = SameAnswers()
        self._error: UserError | None = None
        self._on_the_way, self._factor = Cost(), 1.0
        self._num_answered, self._has_waited = 0, False
        self._not_taken: list[str] = []

    def key(self, line: str) -> str:
        """The name of the answers for a line."""
        return f"{text_key(json.dumps([self.fact, self.prompt.terms(line), line])):016x}"

    def judged(self, line: str) -> list[Answer]:
        """The answers for a line so far, with the checks that they fail."""
        answers = self.answers.of(self.key(line))
        for answer in answers:
            if answer.text and not answer.reason:
                self._same.add(line, answer.text)
        return [Answer(a.text, a.reason or self._failed(line, a.text)) for a in answers]

    def _failed(self, line: str, text: str) -> str | None:
        """The first check that an answer fails."""
        is_same = "chatter" in self._settings.checks and text in self._same
        return "chatter" if is_same else self._failed_check(line, text)

    def lacks(self, line: str) -> bool:
        """True if a line is still to be asked for: once for each candidate, and as often again if none of
        these is good.
        """
        answers, most = self.judged(line), self._settings.candidates
        is_good = any(answer.reason is None for answer in answers)
        return len(answers) < (most if is_good else 2 * most)

    def _parts(self, lines: Sequence[str]) -> list[Sequence[str]]:
        size = self._settings.lines
        return [lines[start : start + size] for start in range(0, len(lines), size)]

    def estimate(self, lines: Sequence[str]) -> Cost:
        """The probable cost of the requests for lines, if each brings good answers."""
        cost = Cost()
        for part in self._parts(lines):
            cost = cost.plus(self._expected(self.prompt.of(part), part), self._settings.candidates)
        return cost

    def _expected(self, question: str, lines: Sequence[str]) -> Cost:
        texts = question, "\n".join(lines)
        prompt, answer = (self._factor * len(text.encode()) / _BYTES_OF_TOKEN for text in texts)
        return Cost.of(1, prompt, answer, self._settings.price)

    async def ask_for(self, lines: Sequence[str]) -> None:
        """Ask for the lines, and keep what comes. After an error nothing more is sent, and what was sent is
        waited for; then it is raised.
        """
        parts = self._parts(lines)
        self._stopped, left = asyncio.Event(), iter(parts)
        with show_progress(None, "asking", len(lines)) as bar:

            async def work() -> None:
                for part in left:
                    await self._settle(part)
                    bar.update(len(part))

            async with self._chat:
                await asyncio.gather(*(work() for _ in range(min(self._settings.parallel, len(parts)))))
        if self._not_taken and not self._num_answered and not self._error:
            self.answers.forget(NOT_TAKEN)  # it takes no request, not only not these lines
            self._error = self._chat.refusal(self._not_taken[0])
        if self._error is not None:
            raise self._error

    async def _settle(self, part: Sequence[str]) -> None:
        """Ask for these lines together, and alone for each that has no good answer then."""
        for number in range(self._settings.candidates):
            if lines := [line for line in part if len(self.judged(line)) <= number]:
                await self._ask(lines)
        for line in part:
            while self.lacks(line) and not self._stopped.is_set():
                await self._ask([line])

    async def _ask(self, lines: Sequence[str]) -> None:
        """Keep an answer for each of these lines, after as many tries as the server needs."""
        number, before, message = 0, self._num_answered, ""
        while number < _TRIES:
            reply = None if self._stopped.is_set() else await self._try(self.prompt.of(lines), lines)
            if reply is None or reply.reason != NO_ANSWER:
                return
            message, wait = reply.message, max(reply.wait, random.uniform(0.5, 1) * min(60, 2**number))
            if wait > _MOST_WAIT:
                advice = "" if wait == math.inf else f"; it asks to wait {duration(wait)}"
                return self._end(self._chat.silence(message + advice))
            if not self._has_waited:
                say(f"note: the server does not answer ({message}); it is asked again in {duration(wait)}")
                self._has_waited = True
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), wait)
            # As long as it answers other questions, a busy server is waited for.
            number = 0 if reply.is_busy and self._num_answered > before else number + 1
            before = self._num_answered
        probe = await self._try(_PROBE, [])
        if probe is not None and probe.reason == NO_ANSWER:
            self._end(self._chat.silence(message))
        elif probe is not None:  # it is only these lines that the server has no answer for
            self.answers.give_up(map(self.key, lines), Answer("", NO_ANSWER))

    async def _try(self, question: str, lines: Sequence[str]) -> Reply | None:
        """Make a request, and keep its cost and its answers. None if nothing more is to be sent."""
        settings, factor, expected = self._settings, self._factor, self._expected(question, lines)
        if over := self.answers.spent.plus(self._on_the_way).plus(expected).over(settings.limit):
            self._end(None if settings.limit.enough else _reached(over))
            return None
        self._on_the_way = self._on_the_way.plus(expected)
        try:
            reply = await self._chat.ask(question)
        except InputError as error:
            self._end(error)
            return None
        finally:
            self._on_the_way = self._on_the_way.plus(expected, -1)
        is_answer = reply.reason not in (NO_ANSWER, NOT_TAKEN)
        usual = expected if is_answer else Cost()
        cost = Cost.of(
            1,
            usual.prompt_tokens if reply.prompt_tokens is None else reply.prompt_tokens,
            usual.answer_tokens if reply.answer_tokens is None else reply.answer_tokens,
            settings.price,
        )
        answers = [Answer("", reply.reason)] * len(lines)
        if reply.reason is None:
            answers = self.prompt.read(reply.text, lines)
        is_kept = reply.reason != NO_ANSWER
        self.answers.put(dict(zip(map(self.key, lines), answers)) if is_kept else {}, settings.endpoint, cost)
        if is_answer:  # what costs more than expected raises what is expected
            self._num_answered += 1
            self._factor = max(self._factor, factor * cost.tokens / expected.tokens)
        if reply.reason == NOT_TAKEN:
            self._not_taken.append(reply.message)
        if len(self._not_taken) > settings.parallel and not self._num_answered:
            self._stopped.set()
        return reply

    def _end(self, error: UserError | None) -> None:
        """Send nothing more."""
        self._error = self._error or error
        self._stopped.set()


def _reached(limit: str) -> WorkError:
    return WorkError(
        f"{limit} is reached, and all answers are kept: raise it and run the same command to go on, or set "
        "teacher.limit.enough to true to use the lines that are answered"
    )
