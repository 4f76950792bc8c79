"""A language model as a teacher: lines are asked for, checked, asked for once more, and kept."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from transformer_mt.companions.lab.teacher import Row
from transformer_mt.companions.teacher.answer_checks import checks_of
from transformer_mt.companions.teacher.candidate_scores import scorer
from transformer_mt.companions.teacher.chat import Chat
from transformer_mt.companions.teacher.kept_answers import Answer, Answers, Cost
from transformer_mt.companions.teacher.prompt import Prompt
from transformer_mt.companions.teacher.teacher_section import LanguageModelConfig, TeacherFile
from transformer_mt.config.load import load_yaml
from transformer_mt.errors import InputError, Setting
from transformer_mt.files import write_text
from transformer_mt.messages import say
from transformer_mt.progress_bar import show_progress
from transformer_mt.text.hashes import text_key
from transformer_mt.text.lines import read_lines

_BYTES_OF_TOKEN = 4
_LIMIT = "limit"
"""The reason of lines that were not sent."""


def open_described(file: Path, languages: tuple[str | None, str | None]) -> "LanguageModel | None":
    """The teacher that a YAML file describes; None if it has no `teacher`. InputError for its mistakes."""
    if not any(line.startswith("teacher:") for line in read_lines(file)):
        return None
    settings = load_yaml(TeacherFile, file).teacher
    source, target = languages
    if source is None or target is None:
        raise InputError(Setting("from"), " and ", Setting("to"), " must name the languages of the text")
    return LanguageModel(file, settings, (source, target))


class LanguageModel:
    """A teacher behind a server, which translates between two languages."""

    def __init__(self, file: Path, settings: LanguageModelConfig, languages: tuple[str, str]) -> None:
        """`file` is the YAML file, beside which the answers are kept."""
        self.languages, self._settings = languages, settings
        self._chat, self._prompt = Chat(settings), Prompt(settings, languages)
        self._failed_check = checks_of(settings.checks, languages)
        self._scores = scorer(settings.metric, languages) if settings.metric else None
        self.has_scores = self._scores is not None
        self._answers = Answers(file.with_name(f"{file.stem}.answers.sqlite"))
        self.models = [self._answers.file]  # without a record of sentences, so that no student's is complete
        self._over: str | None = None
        self._spent = self._on_the_way = Cost()

    def facts(self, languages: tuple[str, str]) -> dict[str, str]:
        chosen = self._settings
        return {
            "language model": chosen.model,
            "prompt": json.dumps([self._prompt.text, chosen.lines, chosen.glossary, *languages]),
            "parameters": json.dumps([chosen.parameters, chosen.candidates, chosen.metric], sort_keys=True),
            "checks": " ".join(chosen.checks),
        }

    def takes(self, line: str) -> bool:
        """Its server refuses lines that are too long."""
        return True

    def begin(self, lines: Callable[[], Iterable[str]]) -> None:
        chosen, count, known, cost = self._settings, 0, 0, Cost()
        for line in lines():
            is_known = bool(self._answers.get(self._key(line)))
            known, count = known + is_known, count + (not is_known)
            cost += Cost() if is_known else self._estimate([line]) * chosen.candidates
        say(
            f"{chosen.model} at {chosen.endpoint} translates {count:,} lines: about {cost.requests:,.0f} "
            f"requests, {cost.prompt_tokens:,.0f} tokens of prompts, {cost.answer_tokens:,.0f} of answers"
            + (f", {cost.money(chosen):,.2f} by teacher.price" if chosen.price else "")
            + (f"; {known:,} lines are answered already" if known else "")
        )
        if over := (self._answers.spent() + cost).over(chosen):
            say(f"note: teacher.{over} will probably end this early")
        say("note: a language model may know public test sets: its students' scores on them can be too high")

    def rows(self, lines: Sequence[str]) -> Iterator[Row]:
        self._spent = self._answers.spent()
        asyncio.run(self._ask_for([line for line in lines if not self._answers.get(self._key(line))]))
        answers = [self._judged(line, self._answers.get(self._key(line))) for line in lines]
        good = [list(dict.fromkeys(a.text for a in of_line if not a.reason)) for of_line in answers]
        pairs = [(line, text) for line, texts in zip(lines, good) for text in texts]
        scores = iter(self._scores(pairs) if self._scores and pairs else [0.0] * len(pairs))
        for line, of_line, texts in zip(lines, answers, good):
            scored = [(next(scores), text) for text in texts]
            score, text = max(scored, key=lambda pair: pair[0], default=(0.0, ""))
            flags = [] if texts else [of_line[-1].reason if of_line else _LIMIT]
            yield {self.languages[1]: text, self.languages[0]: line, "score": round(score, 4), "flags": flags}

    def end(self, out: Path, lines: Callable[[], Iterable[str]], counts: Mapping[str, int]) -> None:
        """Write the receipt beside the corpus."""
        chosen = self._settings
        cost, first, last = self._answers.of(self._key(line) for line in lines())
        facts = {
            "model": chosen.model, "endpoint": chosen.endpoint, "prompt": self._prompt.text,
            "settings": chosen.model_dump(exclude={"model", "endpoint", "prompt", "key"}),
            "languages": self.languages, "first": first, "last": last, "requests": round(cost.requests),
            "prompt_tokens": round(cost.prompt_tokens), "answer_tokens": round(cost.answer_tokens),
            "money": cost.money(chosen) if chosen.price else None, "lines": dict(counts),
            "share_kept": round(counts["kept"] / counts["read"], 4),
        }  # fmt: skip
        receipt = out.with_suffix(".receipt.json")
        write_text(receipt, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
        say(f"{receipt}: {cost.requests:,.0f} requests, {cost.tokens:,.0f} tokens")
        if counts.get(_LIMIT):
            say(
                f"note: teacher.{self._over or _LIMIT} was reached, and {counts[_LIMIT]:,} lines were not "
                "sent; to go on, raise it and make the corpus again: what was answered is kept"
            )

    async def _ask_for(self, lines: Sequence[str]) -> None:
        """Ask for lines that were never asked for, and keep what comes."""
        n, self._gate = self._settings.lines, asyncio.Semaphore(self._settings.parallel)
        with show_progress(None, "asking", len(lines)) as bar:

            async def settle(part: Sequence[str]) -> None:
                await self._settle(part)
                bar.update(len(part))

            async with self._chat:
                await asyncio.gather(*(settle(lines[i : i + n]) for i in range(0, len(lines), n)))

    async def _settle(self, lines: Sequence[str]) -> None:
        """Keep the answers for these lines; a line of which none is good is asked for once more, alone."""

        async def keep(line: str, answers: Sequence[Answer], cost: Cost) -> None:
            if all(answer.reason for answer in self._judged(line, answers)):
                for more, its_cost in await self._candidates([line]):
                    answers, cost = [*answers, *more], cost + its_cost
            self._answers.put(self._key(line), answers, cost)

        asked = await self._candidates(lines)
        await asyncio.gather(*(keep(line, *answered) for line, answered in zip(lines, asked)))

    async def _candidates(self, lines: Sequence[str]) -> list[tuple[Sequence[Answer], Cost]]:
        """The answers for each of the lines, with their cost; nothing if a limit is reached."""
        asked = await asyncio.gather(*(self._ask(lines) for _ in range(self._settings.candidates)))
        replies = [reply for reply in asked if reply is not None]
        cost = sum((cost for _, cost in replies), Cost()) * (1 / len(lines))
        return [(answers, cost) for answers in zip(*(answers for answers, _ in replies))]

    async def _ask(self, lines: Sequence[str]) -> tuple[list[Answer], Cost] | None:
        """One answer for each of the lines; None if a limit is reached."""
        expected = self._estimate(lines)
        async with self._gate:
            sent = self._spent + self._on_the_way + expected
            self._over = self._over or sent.over(self._settings)
            if self._over:
                return None
            self._on_the_way += expected
            try:
                reply = await self._chat.ask(self._prompt.of(lines))
            finally:
                self._on_the_way += expected * -1
        cost = Cost(
            reply.requests,
            expected.prompt_tokens if reply.prompt_tokens is None else reply.prompt_tokens,
            expected.answer_tokens if reply.answer_tokens is None else reply.answer_tokens,
        )
        self._spent += cost
        if reply.reason:
            return [Answer(reply.text, reply.reason)] * len(lines), cost
        return self._prompt.read(reply.text, lines), cost

    def _judged(self, line: str, answers: Sequence[Answer]) -> list[Answer]:
        """The answers for a line, with the checks that they fail now, whichever there were when they came."""
        return [
            answer._replace(reason=answer.reason or self._failed_check(line, answer.text))
            for answer in answers
        ]

    def _estimate(self, lines: Sequence[str]) -> Cost:
        """The probable cost of these lines, in a request or as a part of one."""
        share = len(lines) / self._settings.lines
        answer = sum(len(line.encode()) for line in lines) / _BYTES_OF_TOKEN
        return Cost(share, share * len(self._prompt.text) / _BYTES_OF_TOKEN + answer, answer)

    def _key(self, line: str) -> str:
        """The name of the answers for a line: a hash of all that they depend on."""
        chosen, terms = self._settings, self._prompt.terms(line)
        facts = [chosen.model, chosen.prompt, chosen.parameters, chosen.candidates, *self.languages, terms]
        return f"{text_key(json.dumps([*facts, line], sort_keys=True)):016x}"
