"""What a file was made from, recorded next to it: an interrupted step resumes only what is still its own."""

import json
from collections.abc import Mapping
from pathlib import Path

from transformer_mt.errors import InputError, Setting
from transformer_mt.files import write_text


def check_origin(file: Path, facts: Mapping[str, str], origin: Path) -> None:
    """InputError unless `file`, whole or begun, was made from the same facts, as far as `origin` has them, or
    if there is no `origin`.
    """
    try:
        before = json.loads(origin.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(
            f"{file}: must be a file that this command made, but {origin.name} next to it is missing; name "
            "another ",
            Setting("out"),
        ) from None
    if changed := [name for name in facts if before.get(name, facts[name]) != facts[name]]:
        raise InputError(
            f"{file}: was made with another {' and another '.join(changed)}; remove it, or name another ",
            Setting("out"),
        )


def record_origin(origin: Path, facts: Mapping[str, str]) -> None:
    """Write what a file is made from."""
    write_text(origin, json.dumps(dict(facts), indent=1, ensure_ascii=False) + "\n")
