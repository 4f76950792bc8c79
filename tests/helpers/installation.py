"""Copies of the package with other companions, as another installation would have them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.helpers.command import Result

OURS = ("cluster", "documents", "exchange", "inspection", "lab", "serving")


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

    def run(self, *words: object, cwd: Path | None = None, stdin: str = "") -> Result:
        """A command in a Python of its own."""
        path = os.pathsep.join([str(self.folder)])
        done = subprocess.run(
            [sys.executable, "-m", "transformer_mt", *map(str, words)],
            cwd=cwd or self.folder, input=stdin, capture_output=True, text=True, timeout=300,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        return Result(done.returncode, done.stdout, done.stderr)
