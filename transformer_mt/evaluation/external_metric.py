"""A metric computed by a command in an environment of its own, such as COMET."""

import json
import math
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from transformer_mt.errors import InputError, WorkError
from transformer_mt.evaluation.metric import MeanMetric, References, Statistics


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
        values = [self._number(line) for line in done.stdout.decode(errors="replace").splitlines()]
        if len(values) != len(lines):
            raise WorkError(
                f"{self.name}: the command must print one number per sentence, but printed {len(values):,} "
                f"for {len(lines):,}"
            )
        return np.array([(value, 1) for value in values], np.float64)

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
