"""A language model as a teacher of `distill` and `backtranslate`."""

import asyncio
import json
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from transformer_mt.companions.lab.synthetic import Row
from transformer_mt.companions.teacher.answers import Answers
from transformer_mt.companions.teacher.asking import Asking
from transformer_mt.companions.teacher.prompt import LanguageModelConfig, TeacherFile
from transformer_mt.config.load import load_yaml
from transformer_mt.errors import InputError, Setting
from transformer_mt.evaluation.external_metric import StayingMetric
from transformer_mt.evaluation.scoring import Pair, score
from transformer_mt.files import digest, write_text
from transformer_mt.messages import say
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.stages.confidence import Calibration
from transformer_mt.translator import Translator

Texts = tuple[str, str]
"""A source and its translation."""


class CommandScores:
    """Scores that an external command prints for translations. Higher is better."""

    def __init__(self, command: str) -> None:
        """InputError if it is not found."""
        self._metric = StayingMetric("teacher.metric", command)
        self.fact = command

    def of(self, pairs: Sequence[Texts]) -> list[float]:
        sources, translations = zip(*pairs)
        statistics = self._metric.statistics(sources, translations, [()] * len(pairs))
        return [self._metric.sentence_value(row) for row in statistics.tolist()]


class RunScores:
    """The confidence that a run has in translations, from 0 to 1."""

    def __init__(self, folder: Path, languages: tuple[str, str]) -> None:
        """InputError if the run is not calibrated, or does not translate between these languages."""
        calibration = Calibration.load(RunFolder(folder))
        if calibration is None:
            raise InputError(
                f"{folder}: must be a run with calibration.json to score translations; it has no such file"
            )
        self._calibration = calibration
        self._translator = Translator.load(folder, engine="torch").for_set(languages)
        self.fact = str(RunFolder(folder).weights_digest())

    def of(self, pairs: Sequence[Texts]) -> list[float]:
        """The confidence for each pair; 0 if the pair is too long for the model."""
        translator, values = self._translator, [0.0] * len(pairs)
        sources, targets = zip(*pairs)
        ids = zip(translator.encode_src(sources), translator.tokenizer.encode_tgt(targets))
        most = translator.max_positions or float("inf")
        fitting = {i: Pair("", *pairs[i], [both]) for i, both in enumerate(ids) if max(map(len, both)) < most}
        for i, scored in zip(fitting, score(translator, list(fitting.values()))):
            values[i] = self._calibration.confidence(scored.log_prob, len(scored.token_log_probs))
        return values


_MOST_CHARACTERS = 2000


class _AnyFile(BaseModel):
    model_config = ConfigDict(extra="allow")


def open_described(file: Path, languages: tuple[str | None, str | None]) -> "LanguageModel | None":
    """The teacher that a YAML file describes; None if it has no `teacher`. InputError for its mistakes."""
    if "teacher" not in (load_yaml(_AnyFile, file).model_extra or {}):
        return None
    settings = load_yaml(TeacherFile, file).teacher
    source, target = languages
    if source is None or target is None:
        raise InputError(Setting("from"), " and ", Setting("to"), " must name the languages of the text")
    return LanguageModel(file, settings, (source, target))


@contextmanager
def _interrupts_of_asyncio() -> Iterator[None]:
    """Let asyncio handle Ctrl-C by cancelling its tasks. An exception that our own signal handler raises
    inside the event loop can be lost.
    """
    ours = signal.getsignal(signal.SIGINT)
    if not callable(ours) or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, ours)


class LanguageModel:
    """A teacher behind a server, which translates between two languages."""

    def __init__(self, file: Path, settings: LanguageModelConfig, languages: tuple[str, str]) -> None:
        """`file` is the YAML file; the answers are kept next to it."""
        self.languages, self._settings = languages, settings
        self._asking = Asking(settings, languages)
        self._scores: CommandScores | RunScores | None = None
        if metric := settings.metric:
            is_run = Path(metric).is_dir()
            self._scores = RunScores(Path(metric), languages) if is_run else CommandScores(metric)
        self.has_scores = self._scores is not None
        self.models = [file.with_name(f"{file.stem}.answers.sqlite")]
        """The file of answers. It has no record of training sentences, so the record of a student is never
        complete.
        """

    def facts(self, languages: tuple[str, str]) -> dict[str, str]:
        chosen = self._settings
        return {
            "language model": self._asking.fact,
            "glossary": digest(Path(chosen.glossary)) if chosen.glossary else "",
            "metric": self._scores.fact if self._scores else "",
            "set of checks": " ".join(chosen.checks),
            "limit": chosen.limit.model_dump_json() if chosen.limit.enough else "",
        }

    def takes(self, line: str) -> bool:
        """False if the line is too long to be a sentence."""
        return len(line) <= _MOST_CHARACTERS

    def begin(self, lines: Callable[[], Iterable[str]]) -> None:
        """Say what it will cost, and ask for all lines. `rows` has their answers then."""
        asking, chosen = self._asking, self._settings
        asking.answers = Answers(self.models[0])
        try:
            missing = [line for line in lines() if asking.lacks(line)]
            if not missing:
                return
            cost = asking.estimate(missing)
            say(
                f"{chosen.model} at {chosen.endpoint} translates {len(missing):,} lines: at least "
                f"{cost.requests:,.0f} requests, about {cost.prompt_tokens:,.0f} prompt tokens and "
                f"{cost.answer_tokens:,.0f} answer tokens"
                + (f", costing {cost.money:,.2f} according to teacher.price" if chosen.price else "")
            )
            if over := asking.answers.spent.plus(cost).over(chosen.limit):
                say(f"note: {over} will probably be reached before the end")
            say("note: a language model may know public test sets: scores of its students can be too high")
            with _interrupts_of_asyncio():
                asyncio.run(asking.ask_for(missing))
            for line in missing:  # all answers are compared before the first is used
                asking.judged(line)
        except BaseException:
            asking.answers.close()
            raise

    def rows(self, lines: Sequence[str]) -> Iterator[Row]:
        source, target = self.languages
        answers = [self._asking.judged(line) for line in lines]
        good = [list(dict.fromkeys(a.text for a in of_line if not a.reason)) for of_line in answers]
        pairs = [(line, text) for line, texts in zip(lines, good) for text in texts]
        scored_pairs = self._scores.of(pairs) if self._scores and pairs else [0.0] * len(pairs)
        scores = iter([score for _, score in zip(pairs, scored_pairs, strict=True)])
        for line, of_line, texts in zip(lines, answers, good):
            scored = [(next(scores), text) for text in texts]
            score, text = max(scored, key=lambda pair: pair[0], default=(0.0, ""))
            flags = [] if texts else [of_line[-1].reason if of_line else "limit"]
            yield {target: text, source: line, "score": round(score, 4), "flags": flags}

    def end(self, out: Path, lines: Callable[[], Iterable[str]], counts: Mapping[str, int]) -> None:
        """Write the receipt next to the corpus."""
        asking, chosen = self._asking, self._settings
        facts = {
            "model": chosen.model, "languages": self.languages, "prompts": asking.prompt.texts,
            "settings": chosen.model_dump(exclude={"model", "endpoint", "prompt", "key"}),
            **asking.answers.receipt(map(asking.key, lines()), chosen.price), "lines": dict(counts),
            "share_kept": round(counts["kept"] / counts["read"], 4),
        }  # fmt: skip
        asking.answers.close()
        receipt = out.with_suffix(".receipt.json")
        write_text(receipt, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
        tokens = facts["prompt_tokens"] + facts["answer_tokens"]
        say(f"{receipt}: {facts['requests']:,} requests, {tokens:,.0f} tokens")
