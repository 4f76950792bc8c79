"""Copies of the package with other companions, as another installation would have them."""

import shutil
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.helpers.command import Result, WarmProcess

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
            return {name for name in names if str(Path(parent) / name) in gone}

        shutil.copytree(ROOT / "transformer_mt", folder / "transformer_mt", ignore=ignored)
        shutil.copytree(ROOT / "configs", folder / "configs")
        facts = folder / "transformer_mt-1.0.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: transformer-mt\nVersion: 1.0.0\n")
        points = [f"{name} = transformer_mt.companions.{name}:companion" for name in declared]
        (facts / "entry_points.txt").write_text("\n".join(["[transformer_mt.companions]", *points]) + "\n")

    def run(self, *words: object, cwd: Path | None = None) -> Result:
        """A command, in a fork that imports the package of this folder."""
        return self.start(*words, cwd=cwd or self.folder).wait()

    def run_all(self, *commands: tuple[object, ...], cwd: Path) -> list[Result]:
        """Commands one after the other."""
        return [self.run(*words, cwd=cwd) for words in commands]

    def start(self, *words: object, cwd: Path) -> WarmProcess:
        """The same command, while it runs."""
        return WarmProcess(words, cwd, env={"PYTHONPATH": str(self.folder)}, before=(_become, self.folder))


def _become(folder: Path) -> None:
    """In a fork: forget the package, and find it in the folder from now on."""
    for name in [name for name in sys.modules if name.split(".")[0] == "transformer_mt"]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
