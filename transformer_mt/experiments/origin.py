"""What a file was made from, recorded next to it: an interrupted step resumes only what is still its own."""

import json
from collections.abc import Mapping
from pathlib import Path

from transformer_mt.errors import InputError, Setting
from transformer_mt.files import write_text


def check_origin(file: Path, begun: bool, facts: Mapping[str, str]) -> None:
    """Record `facts` for the file; if it is `begun`, InputError unless it was begun from the same ones."""
    note = file.with_name(f"{file.name}.origin.json")
    if begun:
        try:
            before = json.loads(note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            before = {}
        if changed := [name for name in facts if before.get(name) != facts[name]]:
            raise InputError(
                f"{file}: was made with another {' and another '.join(changed)}; remove it, or name another ",
                Setting("out"),
            )
    write_text(note, json.dumps(dict(facts), indent=1, ensure_ascii=False) + "\n")
