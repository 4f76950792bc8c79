"""Write constraints.txt: `python scripts/pin.py [--upgrade]`, with uv installed.

It names a version of each package that any extra needs on any system, and the hashes of all its files. The
versions stay as they are where pyproject.toml permits them; with --upgrade they become the newest.
"""

import re
import subprocess
import sys
import urllib.request

from install import CPU_INDEX, PINS, ROOT

COMMAND = (
    "uv pip compile pyproject.toml - --all-extras --universal --generate-hashes --no-annotate --no-header "
    "--python-version 3.11.5 --quiet --output-file"
)
TORCH = re.compile(r"^torch==(\S+) \\\n(?:    --hash=.*\n)+", re.MULTILINE)
HASH = re.compile("--hash=(sha256:[0-9a-f]{64})")


def main() -> int:
    before = TORCH.search(PINS.read_text(encoding="utf-8"))
    upgrade = ["--upgrade"] if "--upgrade" in sys.argv else []
    subprocess.run([*COMMAND.split(), PINS, *upgrade], cwd=ROOT, input=b"pip\nsetuptools\n", check=True)
    pins = PINS.read_text(encoding="utf-8")
    torch = TORCH.search(pins)
    assert torch
    # PyTorch's builds for CPUs have the same version, and stand in an index that uv is not told of.
    hashes = set(HASH.findall(torch[0]))
    if before and before[1] == torch[1]:
        hashes |= set(HASH.findall(before[0]))
    try:
        page = urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=30).read().decode()
        hashes |= {f"sha256:{sha}" for sha in re.findall(rf"torch-{torch[1]}%2Bcpu[^#]*#sha256=(\w+)", page)}
    except OSError as error:
        print(f"{CPU_INDEX}: {error}; the hashes of builds for CPUs stay as they were", file=sys.stderr)
    lines = " \\\n".join(f"    --hash={one}" for one in sorted(hashes))
    PINS.write_text(pins.replace(torch[0], f"torch=={torch[1]} \\\n{lines}\n"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
