"""A metric computed by a command in an environment of its own, such as COMET."""

import contextlib
import json
import math
import queue
import re
import shlex
import shutil
import subprocess
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from transformer_mt.errors import InputError, WorkError
from transformer_mt.evaluation.metrics import MeanMetric, References, Statistics
from transformer_mt.messages import say, say_once

_MOST = 100.0
_PAUSE = 60.0
"""The minimum number of seconds to wait for the next number, once the command has printed the first."""
_AT_ONCE, _SOON = 0.001, 0.1
"""How many seconds to watch for surplus numbers, before and after a block."""


class ExternalMetric(MeanMetric):
    """The mean of the numbers that a command prints, one for each sentence.

    The command reads one JSON object per line, {"source", "translation", "references"}.
    """

    scale = 1.0
    higher_is_better = None
    digits = 4  # many have values from 0 to 1

    def __init__(self, name: str, command: str) -> None:
        """InputError if the command is not complete. It is started without a shell."""
        self.name = name
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise InputError(f"the command of {name} cannot be read ({error}): {command}") from None
        if not self._words:
            raise InputError(f"the command of {name} must name a program, but is empty")
        if shutil.which(self._words[0]) is None:  # before any translation
            raise InputError(f"{self._words[0]}: the program of {name} is not installed")

    def statistics(
        self, sources: Sequence[str], translations: Sequence[str], references: References
    ) -> Statistics:
        """(the command's number, 1) of each sentence. WorkError with its last words if it fails."""
        rows = zip(sources, translations, references)
        lines = [
            json.dumps({"source": source, "translation": translation, "references": list(expected)})
            for source, translation, expected in rows
        ]
        values = [self._number(line) for line in self._answers(lines)]
        if len(values) != len(lines):
            raise WorkError(
                f"{self.name}: the command must print one number per sentence, but printed {len(values):,} "
                f"for {len(lines):,}"
            )
        if values and max(values) > _MOST:
            say_once(
                f"note: {self.name} gave a sentence {max(values):g}; most metrics end at 1 or 100, so the "
                "command may print something else"
            )
        return np.array([(value, 1) for value in values], np.float64)

    def _answers(self, lines: Sequence[str]) -> list[str]:
        """Run the command with these lines as input. Returns the lines that it prints."""
        try:
            done = subprocess.run(
                self._words, input="".join(f"{line}\n" for line in lines).encode(), capture_output=True
            )
        except OSError as error:
            raise InputError(
                f"{self._words[0]}: the program of {self.name} cannot be started: {error.strerror}"
            ) from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(said) if line.strip()), "no message")
            raise WorkError(f"{self.name}: the command failed with status {done.returncode}: {last}")
        return done.stdout.decode(errors="replace").splitlines()

    def _number(self, line: str) -> float:
        try:
            value = float(line)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise WorkError(
                f"{self.name}: the command must print one number per line, but printed {line.strip()[:80]!r}"
            )
        return value

    def signature(self, references: References) -> str:
        """The command without secrets such as keys, without the folders of files, and with only the scheme of
        URLs.
        """
        return "command:" + " ".join(map(_shown, self._words, ["", *self._words]))


_SECRET = re.compile(r"(?i)key|token|secret|passw|auth|credential")


def _shown(word: str, before: str) -> str:
    """A word of a command as others may see it."""
    option, equals, value = word.partition("=")
    if equals and option.startswith("-"):
        return f"{option}={'...' if _SECRET.search(option) else _shown(value, '')}"
    if before.startswith("-") and "=" not in before and _SECRET.search(before) and not word.startswith("-"):
        return "..."
    if "://" in word:
        return f"{word.partition('://')[0]}://..."
    return Path(word).name if "/" in word else word


class StayingMetric(ExternalMetric):
    """An external metric whose process stays for a whole training, so that it reads its own model only once.
    An empty line follows the sentences of each validation; the process must then print one number per
    sentence and nothing else. Higher numbers are better.
    """

    most_seconds = 1800.0
    """The time to answer a block of sentences."""

    def __init__(self, name: str, command: str) -> None:
        super().__init__(name, command)
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.Queue[str] = queue.Queue()

    def _answers(self, lines: Sequence[str]) -> list[str]:
        """The command's answers. InputError if it ends, is too slow, or prints more numbers or fewer: from
        then on each number would belong to another sentence. A training is then saved.
        """
        process = self._started()
        self._refuse_more(_AT_ONCE)
        text = "".join(f"{line}\n" for line in [*lines, ""]).encode()
        assert process.stdin, "it is a pipe"
        writer = threading.Thread(target=_write, args=(process.stdin, text), daemon=True)
        writer.start()  # a command that answers each line at once waits until it is read
        answers: list[str] = []
        begun, patience = time.monotonic(), self.most_seconds
        while len(answers) < len(lines):
            try:
                line = self._lines.get(timeout=patience)
            except queue.Empty:
                line = ""
            if not line.endswith("\n"):  # it has ended, perhaps within a line, or is too slow
                raise InputError(
                    f"{self.name}: the command must answer each block of sentences (ended by an empty line) "
                    f"within {self.most_seconds / 60:.0f} minutes, with one number per sentence, and run "
                    f"until its input ends, but printed {len(answers):,} numbers for {len(lines):,}"
                )
            answers.append(line)
            # It has read its model: what is still missing takes about as long as what is there.
            patience = min(self.most_seconds, max(_PAUSE, 10 * (time.monotonic() - begun)))
        self._refuse_more(_SOON)
        return answers

    def _started(self) -> "subprocess.Popen[bytes]":
        """The process; a new one if it has ended."""
        if self._process is None or self._process.poll() is not None:
            if self._process is not None:
                say(f"note: the command of {self.name} had ended; it is started again")
            self._lines = queue.Queue()
            self._process = subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            weakref.finalize(self, self._process.kill)
            reader = threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True)
            reader.start()
        return self._process

    def _refuse_more(self, seconds: float) -> None:
        """InputError if the command prints more than was asked for within this time."""
        try:
            more = self._lines.get(timeout=seconds)
        except queue.Empty:
            return
        if more:
            raise InputError(
                f"{self.name}: the command must print one number per sentence, and nothing for the empty "
                f"line that ends a block, but printed {more.strip()[:80]!r}, too"
            )
        self._lines.put(more)  # the end of its output

    def close(self) -> None:
        """End the process. InputError if it has printed more than it was asked for."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._refuse_more(_PAUSE)


def _read(pipe: IO[bytes], lines: "queue.Queue[str]") -> None:
    for line in pipe:
        lines.put(line.decode(errors="replace"))
    lines.put("")  # the end


def _write(pipe: IO[bytes], text: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ValueError):  # said where the answers are missing
        pipe.write(text)
        pipe.flush()
