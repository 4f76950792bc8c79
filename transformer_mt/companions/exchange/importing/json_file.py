"""JSON files of public models."""

import json
from pathlib import Path
from typing import Any

from transformer_mt.errors import InputError


def read_json(file: Path, default: Any = None) -> dict[str, Any]:
    """The object in the file, or `default` where there is none. InputError if it is damaged."""
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if default is None:
            raise InputError(f"{file}: no such file; is the folder a model's?") from None
        facts = default
    except (OSError, ValueError):
        raise InputError(f"{file}: must be JSON in UTF-8, but is not; download it again") from None
    if not isinstance(facts, dict):
        raise InputError(f"{file}: must be an object of JSON, but is not")
    return facts
