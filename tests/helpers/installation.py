"""Copies of the package with other companions, as another installation would have them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.helpers.command import Result

_END = "--- end of a command"
OURS = (
    "browser", "cluster", "documents", "exchange", "inspection", "lab", "language_models", "serving",
    "teacher", "terms", "wizard",
)  # fmt: skip


class Installation:
    """A folder before all others in Python's path: it hides the installed package."""

    def __init__(self, folder: Path, deleted: tuple[str, ...] = (), declared: tuple[str, ...] = OURS) -> None:
        """Without the folders of the companions that are `deleted`; `declared` have their entry points."""
        self.folder = folder
        gone = [str(ROOT / "transformer_mt/companions" / name) for name in deleted]

        def ignored(parent: str, names: list[str]) -> set[str]:
            return {name for name in names if name == "__pycache__" or str(Path(parent) / name) in gone}

        shutil.copytree(ROOT / "transformer_mt", folder / "transformer_mt", ignore=ignored)
        shutil.copytree(ROOT / "configs", folder / "configs")
        facts = folder / "transformer_mt-1.0.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: transformer-mt\nVersion: 1.0.0\n")
        points = [f"{name} = transformer_mt.companions.{name}:companion" for name in declared]
        (facts / "entry_points.txt").write_text("\n".join(["[transformer_mt.companions]", *points]) + "\n")

    def run(self, *words: object, cwd: Path | None = None) -> Result:
        """A command in a Python of its own."""
        return self._python("-m", "transformer_mt", *words, cwd=cwd)

    def start(self, *words: object, cwd: Path) -> "subprocess.Popen[bytes]":
        """The same command, while it runs."""
        command = [sys.executable, "-m", "transformer_mt", *map(str, words)]
        return subprocess.Popen(command, cwd=cwd, stderr=subprocess.DEVNULL, env=self._environment())

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.folder)}

    def run_all(self, *commands: tuple[object, ...], cwd: Path) -> list[Result]:
        """Commands one after the other in one Python, which imports torch once."""
        texts = [[str(word) for word in words] for words in commands]
        code = (
            "import sys\nfrom transformer_mt.cli import main\n"
            f"for words in {texts!r}:\n"
            "    status = main(words)\n"
            f"    for stream in (sys.stdout, sys.stderr): print('{_END}', status, file=stream, flush=True)\n"
        )
        done = self._python("-c", code, cwd=cwd)
        outs, errors = (text.split(_END) for text in (done.out, done.err))
        assert len(errors) == len(commands) + 1, done.err
        statuses = [int(text.split()[0]) for text in errors[1:]]
        return [Result(status, *map(_after_status, texts)) for status, *texts in zip(statuses, outs, errors)]

    def _python(self, *words: object, cwd: Path | None) -> Result:
        done = subprocess.run(
            [sys.executable, *map(str, words)], cwd=cwd or self.folder, capture_output=True, text=True,
            timeout=300, env=self._environment(),
        )  # fmt: skip
        return Result(done.returncode, done.stdout, done.stderr)


def _after_status(text: str) -> str:
    """The text of a command, without the line that ends the one before it."""
    return re.sub(r"^ \d+\n", "", text)
