"""Small text files, written whole or not at all."""

from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write `text`; who reads meanwhile sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
