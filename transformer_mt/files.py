"""Small files, written whole or not at all, read as far as they are whole; and what files hold, in a few letters."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write `text`; who reads meanwhile, or after a power cut, sees the old file or the new one."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    to_disk(temporary)
    temporary.replace(path)


def to_disk(path: Path) -> None:
    """What a file holds, or the names in a folder, are there also after a power cut from now on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_objects(path: Path) -> list[Any]:
    """The objects of a file with a JSON object a line; half a line, which a crash leaves at the end, is left out."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def digest(*paths: Path) -> str:
    """24 letters that tell the contents of these files from any others."""
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()[:24]
