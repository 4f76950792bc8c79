"""A metric computed by a command in an environment of its own, such as COMET."""

import contextlib
import json
import math
import shlex
import shutil
import subprocess
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from transformer_mt.errors import InputError, WorkError
from transformer_mt.evaluation.metric import MeanMetric, References, Statistics

_MOST_SECONDS = 1800


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
            raise InputError(f"{self._words[0]}: the program of {name} must be installed, but is not found")

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
        """The command, without the folders of its files."""
        return "command:" + " ".join(Path(word).name if "/" in word else word for word in self._words)


class StayingMetric(ExternalMetric):
    """The same by a process that stays for a whole training, so that it reads its own model once: after each
    validation's sentences it gets an empty line, and must then have printed their numbers. The higher, the
    better.
    """

    def __init__(self, name: str, command: str) -> None:
        super().__init__(name, command)
        self._process: subprocess.Popen[bytes] | None = None

    def _answers(self, lines: Sequence[str]) -> list[str]:
        """The command's answers. InputError if it ends or is too slow; the training is then saved."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            weakref.finalize(self, self._process.kill)
        process, text = self._process, "".join(f"{line}\n" for line in [*lines, ""]).encode()
        assert process.stdin and process.stdout, "both are pipes"
        too_late = threading.Timer(_MOST_SECONDS, process.kill)
        too_late.start()
        writer = threading.Thread(target=_write, args=(process.stdin, text), daemon=True)
        writer.start()  # a command that answers each line at once waits until it is read
        answers = [process.stdout.readline().decode(errors="replace") for _ in lines]
        too_late.cancel()
        if lines and not answers[-1]:
            raise InputError(
                f"{self.name}: the command must answer each block of sentences, which an empty line ends, "
                f"within {_MOST_SECONDS // 60} minutes, and stay until its input ends, but did not"
            )
        return answers


def _write(pipe: IO[bytes], text: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # said where the answers are missing
        pipe.write(text)
        pipe.flush()
