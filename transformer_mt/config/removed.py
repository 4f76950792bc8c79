"""Keys that saved configs of runs may still have, and that are gone."""

from typing import Any

_ANY = object()
"""The value of a key that never changed a model: any."""

_REMOVED: dict[tuple[str, str], Any] = {
    ("train", "r_drop"): 0.0,
    ("train", "tcmalloc"): _ANY,
    ("denoise", "permute"): True,
    ("filter", "model_score"): None,
    ("data", "memory"): {"share": 0.0, "threshold": 0.6, "file": None},
    ("data", "context"): {"sentences": 1},
    ("decode", "context"): True,
    ("decode", "coverage_penalty"): 0.0,
    ("decode", "diversity"): 0.0,
    ("decode", "repetition_penalty"): 1.0,
    ("augment", "concat"): 0.0,
    ("augment", "placeholders"): 0.0,
    **dict.fromkeys([("train", "documents"), ("valid", "documents"), ("test", "documents")], False),
}
"""(section, key) and its default: a run that had another value is refused."""


def without_removed_keys(values: Any, section: str = "") -> Any:
    """The values of a config without keys that are gone and have their default."""
    if isinstance(values, list):
        return [without_removed_keys(value, section) for value in values]
    if not isinstance(values, dict):
        return values
    return {
        key: without_removed_keys(value, str(key))
        for key, value in values.items()
        if (section, key) not in _REMOVED or _REMOVED[section, key] not in (_ANY, value)
    }
