"""Every call with which a command changes its files fails once: the disk is full, damaged, forbids it, or the
process is killed there. What the command says names the place; what was whole stays whole; and the command,
given again, ends with the same bytes as if nothing had happened.
"""

import itertools
import json
import os
import random
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from safetensors import safe_open

from tests.conftest import TINY
from tests.helpers.chat_server import chat_server
from tests.helpers.command import Result, run_command
from tests.helpers.failing_disk import FAILURES, Call, FailingDisk
from tests.helpers.faults import killed_at_the_end

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="the failing disk is written in C")


class Scenario(NamedTuple):
    """A command in a folder that `prepare` fills."""

    words: tuple[str, ...]
    prepare: Callable[[Path, Path], None]


def _config(folder: Path, **train: object) -> None:
    values = {
        **TINY,
        "train": {**TINY["train"], "max_updates": 6, "validate_every": 3, "save_every": 3, **train},
    }
    values["data"] = {
        **TINY["data"],
        "train": {"toy": "train", "size": 300},
        "valid": {"toy": "valid", "size": 8},
        "test": [{"toy": "test", "size": 6}],
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def _prepared(folder: Path, run: Path, **train: object) -> None:
    _config(folder, **train)
    done = run_command("prepare", "tiny.yaml", cwd=folder, TRANSFORMER_MT_CACHE=str(folder / "cache"))
    assert done.status == 0, done.err


def _with_run(folder: Path, run: Path) -> None:
    shutil.copytree(run, folder / "run")


def _half_trained(folder: Path, run: Path) -> None:
    _prepared(folder, run)
    done = run_command("train", "tiny.yaml", cwd=folder, TRANSFORMER_MT_CACHE=str(folder / "cache"))
    assert done.status == 0, done.err


def _with_text(folder: Path, run: Path) -> None:
    _with_run(folder, run)
    (folder / "in.txt").write_text("".join(f"A man sees {n} dogs.\n" for n in range(8)), encoding="utf-8")


def _as_killed() -> None:
    killed_at_the_end(pytest.MonkeyPatch())


def _half_translated(folder: Path, run: Path) -> None:
    """As a kill leaves it in the middle of a line."""
    _with_text(folder, run)
    words = ("translate", "run", "-i", "in.txt", "-o", "out.txt")
    done = run_command(*words, cwd=folder, before=(_as_killed,))
    assert done.status == 0, done.err
    whole = (folder / "out.txt").read_text(encoding="utf-8")
    (folder / "out.txt").write_text(whole[: len(whole) // 2], encoding="utf-8")


def _with_page(folder: Path, run: Path) -> None:
    _with_run(folder, run)
    (folder / "in.html").write_text("<p>A man <b>sleeps</b>.</p><p>Two dogs.</p>", encoding="utf-8")


def _with_document(folder: Path, run: Path) -> None:
    _with_run(folder, run)
    paragraphs = "".join(
        f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in ("A man sleeps.", "Two dogs.")
    )
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    with zipfile.ZipFile(folder / "in.docx", "w") as archive:
        archive.writestr(
            "word/document.xml", f'<w:document xmlns:w="{space}"><w:body>{paragraphs}</w:body></w:document>'
        )


@cache
def _teacher() -> tuple[Any, str]:
    """A language model that answers as long as this process runs, and its address."""
    server = chat_server(lambda line: f"A man sees {len(line)} dogs.")
    return server, server.__enter__().address


def _with_teacher(folder: Path, run: Path) -> None:
    teacher = {"endpoint": _teacher()[1], "model": "dogs", "checks": []}
    (folder / "teacher.yaml").write_text(yaml.safe_dump({"teacher": teacher}), encoding="utf-8")
    (folder / "news.de").write_text("Der Hund schläft.\nZwei Katzen.\nEin Mann.\n", encoding="utf-8")


SCENARIOS = {
    "teacher": Scenario(
        ("backtranslate", "teacher.yaml", "news.de", "--from", "de", "--to", "en", "--out", "out.jsonl"),
        _with_teacher,
    ),
    "prepare": Scenario(("prepare", "tiny.yaml"), lambda folder, run: _config(folder)),
    "train": Scenario(("train", "tiny.yaml"), _prepared),
    "resume": Scenario(
        ("train", "tiny.yaml", "train.max_updates=12", "train.keep_checkpoints=1"), _half_trained
    ),
    "translate": Scenario(("translate", "run", "-i", "in.txt", "-o", "out.txt"), _with_text),
    "go on": Scenario(("translate", "run", "-i", "in.txt", "-o", "out.txt", "--resume"), _half_translated),
    "page": Scenario(("translate", "run", "-i", "in.html", "-o", "out.html"), _with_page),
    "document": Scenario(
        ("translate", "run", "-i", "in.docx", "-o", "out.docx", "--memory-out", "m.tmx"), _with_document
    ),
    "export": Scenario(("export", "run", "out", "--to", "ctranslate2"), _with_run),
    "hugging face": Scenario(("export", "run", "out", "--to", "huggingface"), _with_run),
    "argos": Scenario(("export", "run", "out.argosmodel", "--to", "argos"), _with_run),
    "evaluate": Scenario(("evaluate", "run"), _with_run),
}


_MAKES = {"open", "write", "fsync", "truncate", "allocate", "mkdir", "rename", "link"}
HAPPENS = {"full": _MAKES, "forbidden": {"open", "mkdir", "unlink", "rmdir", "rename", "link"}}
"""The calls that can fail so; the other failures can happen to all."""


def _environment(folder: Path) -> dict[str, str]:
    return {
        "TRANSFORMER_MT_CACHE": str(folder / "cache"),
        "TMPDIR": str(folder / "tmp"),
        "HOME": str(folder / "home"),
    }


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock" and path.relative_to(folder).parts[0] != "tmp"
    }


_TEMPORARY = re.compile(
    r"(run/(evaluation/)?)?\.[0-9a-f]{16}\.tmp|\.out[^/]*/.*|\.out[^/]*\.zip|.*\.sqlite-(wal|shm)"
)
"""What a kill may leave where no process is alone: nobody knows whether another one still writes it. SQLite's
next opening takes over what a failed checkpoint has left beside a database.
"""


class Trial:
    """A scenario whose calls are known."""

    def __init__(self, name: str, disk: FailingDisk, run: Path) -> None:
        self.name, self.disk = name, disk
        self.scenario = SCENARIOS[name]
        self.folder = disk.folder / "trial"
        self.template = disk.folder / f"{name} before {len(list(disk.folder.iterdir()))}"
        self.template.mkdir()
        for folder in ("tmp", "home", "cache"):
            (self.template / folder).mkdir()
        self.scenario.prepare(self.template, run)
        self._begin()
        result, self.calls = self._command()
        assert result.status == 0, result.err
        self.whole = files_of(self.folder)
        self._begin()
        assert self._command()[0].status == 0
        again = files_of(self.folder)
        same = {name for name, content in self.whole.items() if again.get(name) == content}
        # Receipts and answers have the time.
        self.stable = {name for name in same if not name.endswith((".receipt.json", ".sqlite"))}

    def _begin(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.template, self.folder)

    def _command(self, failing: int = 0, failure: str = "full") -> tuple[Result, list[Call]]:
        words = self.scenario.words
        return self.disk.run(
            *words, cwd=self.folder, failing=failing, failure=failure, **_environment(self.folder)
        )

    def complaints(self, number: int, failure: str) -> list[str]:
        """What is wrong when call `number` fails so."""
        self._begin()
        result, calls = self._command(number, failure)
        failed = [call for call in calls if call.failed]
        if not failed:
            return []
        wrong = [*_wrong_end(result, failed, self, failure), *_half_files(self.folder)]
        where = f"{self.name} {number} {failure}: {failed[0].kind} {failed[0].path.relative_to(self.folder)}"
        complete = result.status == 0 and self._differences() == []
        if result.status == 0 and not complete and not _is_named(failed[0].path, self, result.err):
            wrong.append(f"status 0 and nothing said, but {self._differences()}")
        if complete:  # a failure that costs nothing, as of a cache
            return [f"{where}: {one}" for one in wrong]
        again, _ = self._command()
        if again.status:
            wrong.append(f"cannot be given again: {again.err}")
        left = self._differences()
        if failed[0].kind in ("unlink", "rmdir") and failure != "killed":  # a disk that keeps what is removed
            left = [one for one in left if not one.endswith(" is left")]
        wrong += [f"then: {difference}" for difference in left]
        return [f"{where}: {one}" for one in wrong]

    def _differences(self) -> list[str]:
        now = files_of(self.folder)
        return [
            *(f"{name} is missing" for name in sorted(self.whole.keys() - now.keys())),
            *(
                f"{name} is left"
                for name in sorted(now.keys() - self.whole.keys())
                if not _TEMPORARY.fullmatch(name)
            ),
            *(
                f"{name} differs"
                for name in sorted(self.stable & now.keys())
                if now[name] != self.whole[name]
            ),
        ]


def _wrong_end(result: Result, failed: list[Call], trial: Trial, failure: str) -> Iterator[str]:
    if failure == "killed":
        if result.status != -9:
            yield f"status {result.status} after a kill"
        return
    if "Traceback" in result.err:
        yield result.err[-3000:]
    elif result.status and not any(_is_named(call.path, trial, result.err) for call in failed):
        yield f"{failed[0].path} is not named: {result.err}"


def _is_named(path: Path, trial: Trial, text: str) -> bool:
    """Whether the text names the path; for a hidden file also the one it belongs to, or the folder."""
    path = path.relative_to(trial.folder)
    path = path.with_name(re.sub("-(journal|wal|shm)$", "", path.name)) if path.name else path  # of SQLite
    visible = [*itertools.takewhile(lambda part: not part.startswith("."), path.parts)]
    names = {str(path), "/".join(visible)}
    if len(visible) == len(path.parts):
        names.add(str(path.parent))
    elif not visible:  # in the current folder
        names |= {f"{word.partition('.')[0]}." for word in trial.scenario.words if "." in word}
    return any(name in text for name in names - {"", "."})


def _half_files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        try:
            if path.suffix == ".safetensors":
                with safe_open(path, framework="pt") as file:
                    file.keys()
            elif path.suffix == ".json":
                json.loads(path.read_text(encoding="utf-8"))
            elif path.suffix == ".yaml":
                yaml.safe_load(path.read_text(encoding="utf-8"))
        except Exception as error:
            yield f"{path.relative_to(folder)} is not whole: {error}"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FailingDisk]:
    disk = FailingDisk(tmp_path_factory.mktemp("disk"))
    yield disk
    disk.close()


SEED, SAMPLE = int(os.environ.get("FAILING_WRITES_SEED", "1")), 5


def _trials(trial: Trial) -> list[tuple[int, str]]:
    return [
        (call.number, failure)
        for call in trial.calls
        for failure in FAILURES
        if call.kind in HAPPENS.get(failure, {call.kind})
    ]


@pytest.mark.parametrize("name", ["prepare", "train", "go on", "document"])
def test_a_sample_of_calls_fails(disk, tiny_run, name):
    trial = Trial(name, disk, tiny_run)
    some = random.Random(f"{name} {SEED}").sample(_trials(trial), SAMPLE)
    assert [wrong for number, failure in some for wrong in trial.complaints(number, failure)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_call_fails(disk, tiny_run, name):
    """Ten minutes for each kind of command."""
    trial = Trial(name, disk, tiny_run)
    trials = _trials(trial)
    wrong = [one for number, failure in trials for one in trial.complaints(number, failure)]
    assert wrong == [], f"{len(wrong)} of {len(trials)}"


if __name__ == "__main__":  # python -m tests.integration.test_every_write RUN [COMMAND ...]: as it goes on
    with tempfile.TemporaryDirectory() as place:
        all_of_it = FailingDisk(Path(place))
        for name in sys.argv[2:] or SCENARIOS:
            trial = Trial(name, all_of_it, Path(sys.argv[1]))
            wrong = 0
            for number, failure in (trials := _trials(trial)):
                for one in trial.complaints(number, failure):
                    wrong += 1
                    sys.stdout.write(f"{one}\n")
            sys.stdout.write(f"| {name} | {len(trial.calls)} | {len(trials)} | {wrong} |\n")
            sys.stdout.flush()
