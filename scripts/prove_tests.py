"""Run the test suite under circumstances that must not matter: `python scripts/prove_tests.py [NAME ...]`

Each is run --times times, in a copy of the last commit. The table says how many tests passed, failed and were
skipped, and how long it took; the status is 1 if any failed. Words after `--` go to pytest.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer_mt.messages import table

ROOT = Path(__file__).parent.parent
PYTEST = ("-m", "pytest", "-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder")
# What each library calls the oldest instructions that it can be held to.
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell", "CT2_FORCE_CPU_ISA": "AVX2",
}  # fmt: skip
PLAIN = {
    "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "OPENBLAS_CORETYPE": "Nehalem", "CT2_FORCE_CPU_ISA": "GENERIC",
}  # fmt: skip
NOBODY = 65534
BUSY_DISK = "while :; do dd if=/dev/zero of=filler bs=1M count=500 conv=fsync 2> /dev/null; done"


@contextmanager
def busy_machine(folder: Path) -> Iterator[None]:
    """Two busy loops, and a program that writes to the disk all the time."""
    loops = ["while :; do :; done"] * 2 + [BUSY_DISK]
    programs = [subprocess.Popen(["sh", "-c", loop], cwd=folder, start_new_session=True) for loop in loops]
    try:
        yield
    finally:
        for program in programs:
            os.killpg(program.pid, 9)


def run(place: Path, name: str, number: int, more: list[str]) -> list[str]:
    """One run of the suite; a row of the table."""
    folder = place / ("Ein Ordner Ωmega мир" if name == "stranger" else "copy")
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder)}
    environment |= {"avx2": AVX2, "plain": PLAIN}.get(name, {})
    command = [sys.executable, *PYTEST, *more]
    before: Callable[[], None] | None = None
    if name == "random":
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        usual = project["tool"]["pytest"]["ini_options"]["addopts"].replace("-p no:randomly", "")
        command += ["-o", f"addopts={usual}", f"--randomly-seed={number}"]
    if name == "stranger":
        environment = {name: environment[name] for name in ("PATH", "OMP_NUM_THREADS", "PYTHONPATH")}
        environment |= {"LANG": "C", "TMPDIR": str(place / "t мп"), "PYTHONDONTWRITEBYTECODE": "1"}
        (place / "t мп").mkdir()  # short: Ray puts sockets there
        for path in (place, *place.rglob("*")):
            os.chown(path, NOBODY, NOBODY)

        def before() -> None:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)

    log = ROOT / f"build/prove_tests/{name}-{number}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with log.open("w") as file:
        process = {"cwd": folder, "env": environment, "stdout": file, "stderr": subprocess.STDOUT}
        if name == "busy":
            with busy_machine(place):
                subprocess.run(command, **process)  # type: ignore[call-overload]
        else:
            subprocess.run(command, preexec_fn=before, **process)  # type: ignore[call-overload]
    text = log.read_text(encoding="utf-8", errors="replace")
    counts = {kind: sum(map(int, re.findall(rf"(\d+) {kind}", text.splitlines()[-1]))) for kind in KINDS}
    return [name, str(number), *(str(counts[kind]) for kind in KINDS), f"{time.monotonic() - begun:.0f}"]


KINDS = ("passed", "failed", "error", "skipped")
NAMES = ("alone", "busy", "avx2", "plain", "random", "stranger")


def main() -> int:
    words, more = sys.argv[1:], []
    if "--" in words:
        words, more = words[: words.index("--")], words[words.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES), default=NAMES)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args(words)
    rows = []
    for name in options.names:
        for number in range(1, options.times + 1):
            place = Path(tempfile.mkdtemp(prefix="prove"))
            try:
                rows.append(run(place, name, number, more))
            finally:
                shutil.rmtree(place, ignore_errors=True)
            print(*rows[-1], flush=True)
    print(table(rows, ["circumstances", "run", *KINDS, "seconds"]))
    return int(any(row[3] != "0" or row[4] != "0" for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
