"""Build what is published, so that anyone can check it: `make package`.

build/dist gets the wheel, the source archive, a list of all packages that constraints.txt pins (CycloneDX)
and SHA256SUMS. They come from the last commit: two builds of it, in different folders, must have the same
bytes, on any day; so whoever builds the commit again can compare.
"""

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
OUT = ROOT / "build/dist"


def run(*words: object, cwd: Path = ROOT, **environment: str) -> bytes:
    """The standard output of a command; a failure ends the script with what it said."""
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True)
    if done.returncode:
        text = (done.stdout[-3000:] + done.stderr[-3000:]).decode(errors="replace")
        raise SystemExit(f"{' '.join(command)} has failed:\n{text}")
    return done.stdout


def without_circumstances(archive: Path, seconds: int) -> None:
    """Write a .tar.gz again without what differs between machines: owners, times and the order of files."""
    with tarfile.open(archive) as old:
        members = sorted(old.getmembers(), key=lambda member: member.name)
        files = ((member.name, old.extractfile(member)) for member in members)
        contents = {name: file.read() for name, file in files if file}
    with (
        archive.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=seconds) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in members:
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.pax_headers = seconds, {}
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, io.BytesIO(contents[member.name]) if member.isfile() else None)


def build(commit: str, folder: Path, seconds: int) -> dict[str, bytes]:
    """The wheel and the source archive of a commit, by name."""
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(run("git", "archive", commit))) as tree:
        tree.extractall(folder, filter="data")
    out = folder / "dist"
    build_all = (sys.executable, "-m", "build", "--no-isolation", "--outdir", out)
    run(*build_all, cwd=folder, SOURCE_DATE_EPOCH=str(seconds))
    for archive in out.glob("*.tar.gz"):
        without_circumstances(archive, seconds)
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def main() -> int:
    if changed := run("git", "status", "--porcelain").decode().splitlines():
        print(f"note: {len(changed)} changes since the last commit are left out", file=sys.stderr)
    commit, seconds = run("git", "log", "-1", "--format=%H %ct").decode().split()
    with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as elsewhere:
        built = build(commit, Path(here) / "one", int(seconds))
        again = build(commit, Path(elsewhere) / "another name", int(seconds))
    if differing := [name for name in built.keys() | again.keys() if built.get(name) != again.get(name)]:
        raise SystemExit(f"two builds of {commit} differ: {', '.join(sorted(differing))}")
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    for name, content in built.items():
        (OUT / name).write_bytes(content)
    run(sys.executable, "-m", "twine", "check", "--strict", *(OUT / name for name in built))
    source = next(name for name in built if name.endswith(".tar.gz"))
    bom = OUT / f"{source.removesuffix('.tar.gz')}.cdx.json"
    listing = (sys.executable, "-m", "cyclonedx_py", "requirements", "constraints.txt")
    where = ("--pyproject", "pyproject.toml", "--output-reproducible", "--output-file", bom)
    run(*listing, *where, SOURCE_DATE_EPOCH=str(seconds))
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(OUT.iterdir())
    ]
    (OUT / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    print(f"{commit}: built twice with the same bytes\n{''.join(sums)}", end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
