"""Asks a chat-completions server until each line has its answers: retries, repeated questions, limits."""

import asyncio
import base64
import html
import json
import math
import os
import random
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from transformer_mt.companions.teacher.answers import Answers, Cost, SameAnswers, checks_of
from transformer_mt.companions.teacher.prompt import Answer, LanguageModelConfig, Prompt
from transformer_mt.errors import InputError, UserError, WorkError
from transformer_mt.messages import duration, say, show_progress
from transformer_mt.text.hashes import text_key

_MOST_BYTES = 4 << 20
_TEMPORARY = {408, 409, 425, 429}
_OF_THE_TEXT = {400, 403, 413, 422, 451}  # a server that takes other texts may refuse this one
_REASONS = {"length": "truncated", "content_filter": "refused"}
NO_ANSWER, NOT_TAKEN = "no answer", "not taken"


class Reply(NamedTuple):
    """The answer to a question."""

    text: str = ""
    reason: str | None = None
    """Why there is no translation: truncated, refused, NOT_TAKEN, or NO_ANSWER, which is worth a retry."""
    message: str = ""
    """What the server says of that."""
    wait: float = 0.0
    """Seconds that the server asks to wait."""
    is_busy: bool = False
    """True if it would answer another time."""
    prompt_tokens: int | None = None
    """None where the server does not say."""
    answer_tokens: int | None = None


class Chat:
    """The server of a teacher. Questions are asked within `async with`."""

    def __init__(self, settings: LanguageModelConfig) -> None:
        """InputError if the extra or the key is missing."""
        try:
            import httpx
        except ImportError:
            raise InputError("this needs httpx: pip install 'transformer-mt[teacher]'") from None
        self._httpx, self._settings = httpx, settings
        self.address = f"{settings.endpoint.rstrip('/')}/chat/completions"
        self._has_answered = False
        self._key = os.environ.get(settings.key, "").strip() if settings.key else ""
        if settings.key and not (self._key.isascii() and self._key.isprintable() and self._key):
            raise InputError(
                f"the environment variable {settings.key}, which teacher.key names, must hold the key of the "
                "server, in printable ASCII characters"
            )

        self._spellings = _spellings(self._key)

    async def __aenter__(self) -> None:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limits = self._httpx.Limits(max_connections=None)
        try:  # redirects are not followed, so that the key goes to no other address
            self._client = self._httpx.AsyncClient(headers=headers, timeout=None, limits=limits)
        except (ImportError, ValueError) as error:
            raise InputError(f"the proxy that the environment names cannot be used: {error}") from None

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def ask(self, question: str) -> Reply:
        """The reply. InputError if the server takes no requests like this one."""
        message = {"role": "user", "content": question}
        body = {**self._settings.parameters, "model": self._settings.model, "messages": [message]}
        content = b""
        try:
            async with (
                asyncio.timeout(self._settings.timeout),
                self._client.stream("POST", self.address, json=body) as response,
            ):
                async for block in response.aiter_bytes():
                    content += block
                    if len(content) > _MOST_BYTES:
                        return Reply(reason=NO_ANSWER, message=f"more than {_MOST_BYTES >> 20} MB")
        except TimeoutError:
            return Reply(reason=NO_ANSWER, message=f"no answer within {self._settings.timeout:g} s")
        except (self._httpx.HTTPError, self._httpx.InvalidURL) as error:
            is_off = isinstance(error, self._httpx.ConnectError | self._httpx.InvalidURL)
            wait = math.inf if is_off and not self._has_answered else 0.0  # it was never there
            said = self._in_a_line(str(error) or type(error).__name__)
            return Reply(reason=NO_ANSWER, message=said, wait=wait)
        status = response.status_code
        said = f"{status}: {self._message(content)}"
        if status == 200:
            return self._reply(content)
        if status >= 500 or status in _TEMPORARY:
            wait = _seconds(response.headers.get("Retry-After", ""))
            return Reply(reason=NO_ANSWER, message=said, wait=wait, is_busy=status in (429, 503))
        if status in _OF_THE_TEXT:
            return Reply(reason=NOT_TAKEN, message=said)
        raise self.refusal(said)

    def refusal(self, said: str) -> InputError:
        """The error of a server that takes no request."""
        return InputError(
            f"{self.address}: must take the requests, but answers {said}; check endpoint, model, key and "
            "parameters"
        )

    def silence(self, said: str) -> WorkError:
        """The error to raise if the server does not answer; `said` is the reason."""
        return WorkError(
            f"{self.address}: does not answer ({said}); the answers so far are kept: run the same command to "
            "resume"
        )

    def _reply(self, content: bytes) -> Reply:
        try:
            answer = json.loads(content)
            choice, usage = answer["choices"][0], answer.get("usage") or {}
            text, finish = _text_of(choice["message"].get("content")), choice.get("finish_reason")
            tokens = [usage.get(f"{kind}_tokens") for kind in ("prompt", "completion")]
            text = text.encode(errors="replace").decode()  # JSON can hold half a character
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return Reply(reason=NO_ANSWER, message=f"no chat completion: {self._message(content)}")
        self._has_answered = True
        counts = (n if type(n) is int and 0 <= n < 1 << 40 else None for n in tokens)
        return Reply(text, _REASONS.get(str(finish)), "", 0.0, False, *counts)

    def _message(self, content: bytes) -> str:
        """The message of an answer that is an error."""
        text = content.decode(errors="replace")
        try:
            error: Any = json.loads(text)["error"]
            text = str(error["message"] if isinstance(error, dict) else error)
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
        return self._in_a_line(text)

    def _in_a_line(self, text: str) -> str:
        """The text without the key, in one line that is not too long."""
        text = " ".join(text.split())
        for spelled in self._spellings:
            text = re.sub(re.escape(spelled), "…", text, flags=re.IGNORECASE)
        return text[:200]


def _text_of(content: Any) -> str:
    """The text of a message, which may come in parts."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") in ("text", "output_text"))
    return content or ""


def _spellings(key: str) -> list[str]:
    """The forms in which a key may appear in a message: plain, or encoded for a URL, in JSON, HTML, base64 or
    hexadecimal; the longest first.
    """
    if not key:
        return []
    raw = key.encode()
    encoded = [base64.b64encode(raw), base64.urlsafe_b64encode(raw), base64.b64encode(b"Bearer " + raw)]
    spelled = [key, quote(key, safe=""), quote_plus(key), json.dumps(key)[1:-1], html.escape(key), raw.hex()]
    spelled += [text.decode().rstrip("=") for text in encoded]
    return sorted(set(spelled), key=len, reverse=True)


def _seconds(header: str) -> float:
    """The wait of a header Retry-After, which has seconds or a date."""
    if header.strip().isdecimal():
        return float(header)
    try:
        return parsedate_to_datetime(header).timestamp() - time.time()
    except (ValueError, TypeError):
        return 0.0


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
        """True if a line must still be asked for. Each line is asked for `candidates` times, and up to as
        many times again until an answer is good.
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
        """Ask for the lines, and keep the answers. After an error no more requests are sent; the error is
        raised once the pending requests have finished.
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
            self.answers.forget(NOT_TAKEN)  # the server refuses all requests, not just these
            self._error = self._chat.refusal(self._not_taken[0])
        if self._error is not None:
            raise self._error

    async def _settle(self, part: Sequence[str]) -> None:
        """Ask for these lines together, then separately for each that still has no good answer."""
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
