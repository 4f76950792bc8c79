"""The origin of a file, recorded next to it: an interrupted step resumes only what is still its own."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer_mt.errors import InputError, Setting
from transformer_mt.files import set_aside, write_text
from transformer_mt.messages import say
from transformer_mt.run_folder import facts_of


def start_over(folder: Path, inputs: Sequence[Path]) -> None:
    """Move an old folder aside. InputError if one of the inputs of what follows is in it."""
    if not folder.is_dir():
        return
    for path in inputs:
        if path.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"{path}: must be outside {folder}, which is moved aside; move it elsewhere first"
            )
    say(f"the old folder is now {set_aside(folder)}")


def check_origin(file: Path, facts: Mapping[str, str], origin: Path) -> None:
    """InputError unless `file`, whole or begun, was made from the same facts, as far as `origin` has them, or
    if there is no `origin`.
    """
    before = facts_of(origin)
    if not before:
        raise InputError(
            f"{file}: must be a file that this command made, but {origin.name} next to it is missing; name "
            "another ",
            Setting("out"),
        )
    if changed := _changed(before, facts):
        raise InputError(
            f"{file}: was made with another {' and another '.join(changed)}; remove it, or name another ",
            Setting("out"),
        )


def set_other_aside(file: Path, facts: Mapping[str, str], origin: Path) -> None:
    """Move the file aside if it was made from other facts, and say which changed."""
    changed = _changed(facts_of(origin), facts)
    if not (changed and file.exists() and file.stat().st_size):
        return
    numbered = (file.with_name(f"{file.name}.old-{number}") for number in itertools.count(1))
    aside = next(path for path in numbered if not path.exists())
    file.rename(aside)
    say(f"{file}: was made with another {' and another '.join(changed)}; that is now {aside.name}")


def _changed(before: Mapping[str, str], facts: Mapping[str, str]) -> list[str]:
    """The names of the facts that differ, as far as they were recorded."""
    return [name for name in facts if before.get(name, facts[name]) != facts[name]]


def record_origin(origin: Path, facts: Mapping[str, Any]) -> None:
    """Write what a file is made from."""
    write_text(origin, json.dumps(dict(facts), indent=1, ensure_ascii=False) + "\n")
