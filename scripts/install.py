"""Install the package and what its extras need: `python scripts/install.py [--editable] [--cpu] EXTRA ...`

constraints.txt names the version of each package and the hashes of its files; pip refuses any other file.
What pip says goes to a log, of which a failure shows the end.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).parent.parent
PINS = ROOT / "constraints.txt"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
_EVERY = 10  # seconds between signs of life
NO_NETWORK = re.compile("NameResolution|NewConnection|ConnectTimeout|ProxyError|from versions: none")


class Failed(Exception):
    """Pip has failed."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*")
    parser.add_argument("--editable", action="store_true", help="take the package from this folder")
    parser.add_argument("--cpu", action="store_true", help="take PyTorch's build for CPUs")
    parser.add_argument(
        "--compile", action="store_true", help="compile every module now: the user of an image cannot write"
    )
    options = parser.parse_args()
    folder = Path(sys.prefix)
    log = folder / "setup.log"
    try:
        with log.open("w", encoding="utf-8") as said:
            install(options, folder, said)
    except Failed:
        text = log.read_text(encoding="utf-8", errors="replace")
        if NO_NETWORK.search(text):
            advice = "connect to a network, or set PIP_INDEX_URL, and run it again"
            print(f"the package index cannot be reached: {advice}", file=sys.stderr)
        else:
            errors = [line for line in text.splitlines() if "ERROR" in line]
            print(*errors[-3:], f"pip has failed; all that it said: {log}", sep="\n", file=sys.stderr)
        return 1
    return 0


def install(options: argparse.Namespace, folder: Path, log: TextIO) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], "setuptools"]  # setuptools builds the package, without a download
    for extra in options.extras:
        needed += project["optional-dependencies"][extra]
    pins = PINS.read_text(encoding="utf-8")

    def pip(*words: object) -> None:
        options_of_all = ["--no-input", *(() if options.compile else ("--no-compile",))]
        command = [sys.executable, "-m", "pip", "install", *options_of_all, *map(str, words)]
        with subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process:
            while True:
                try:
                    if process.wait(timeout=_EVERY):
                        raise Failed
                    return
                except subprocess.TimeoutExpired:
                    said = Path(log.name).read_text(encoding="utf-8", errors="replace")
                    newest = re.findall(r"^ *((?:Collecting|Downloading|Installing) .*)", said, re.M)
                    print(f"  {newest[-1][:60]}" if newest else "  ...", file=sys.stderr, flush=True)

    listed = folder / "needed.txt"
    # Older ones know no hashes in constraints.
    listed.write_text(found(r"^pip==(?:.*\\\n)*.*\n", pins), encoding="utf-8")
    pip("--require-hashes", "-r", listed)
    if options.cpu:  # that index has builds whose hashes are not pinned
        pip("--no-deps", "--index-url", CPU_INDEX, found(r"^torch==\S+", pins))
    listed.write_text("\n".join(needed), encoding="utf-8")
    pip("--require-hashes", "-c", PINS, "-r", listed)
    pip("--no-deps", "--no-build-isolation", *(["--editable"] if options.editable else []), ROOT)


def found(pattern: str, pins: str) -> str:
    """The pin that the pattern describes."""
    match = re.search(pattern, pins, re.MULTILINE)
    assert match, f"{PINS} has no {pattern}"
    return match[0]


if __name__ == "__main__":
    raise SystemExit(main())
