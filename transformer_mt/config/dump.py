"""A Config as commented YAML that reads back the same, and as a JSON schema."""

import json
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from transformer_mt.config.keys import CORPORA, keys
from transformer_mt.config.load import Loader
from transformer_mt.config.root import Config
from transformer_mt.settings.part import PartName
from transformer_mt.settings.section import THOUSANDS


def dump_config(config: Config, comments: bool = False) -> str:
    """The resolved config as YAML that `load_config` reads back; with each key's meaning as a comment if
    asked.
    """
    return _dump(config, comments, lambda section, name: True)


def given_settings(config: Config) -> str:
    """The settings that were given, also those equal to their defaults, as YAML for `load_config`. A parent
    or a vocabulary may decide the others.
    """
    return _dump(config, False, lambda section, name: name in section.model_fields_set)


def changed_settings(config: Config) -> str:
    """The settings that differ from their defaults, as YAML that `load_config` reads back."""
    return _dump(
        config,
        False,
        lambda section, name: getattr(section, name) != type(section).model_fields[name].default,
    )


def _dump(config: Config, comments: bool, is_wanted: Callable[[BaseModel, str], bool]) -> str:
    meanings = {dotted: meaning for dotted, meaning, _ in keys(Config)}

    def lines(section: BaseModel, prefix: str, indent: str) -> Iterator[str]:
        for name in type(section).model_fields:
            value = getattr(section, name)
            comment = f"  # {meanings[prefix + name]}" if comments else ""
            if isinstance(value, BaseModel) and prefix + name not in CORPORA:
                below = list(lines(value, f"{prefix}{name}.", indent + "  "))
                yield from [f"{indent}{name}:{comment}", *below] if below else []
            elif is_wanted(section, name):
                yield f"{indent}{name}: {flow(value)}{comment}"

    return "\n".join(lines(config, "", "")) + "\n"


def as_overrides(settings: Mapping[str, Any]) -> list[str]:
    """Dotted keys and their values as the overrides of `load_config`."""
    return [f"{key}={flow(value)}" for key, value in settings.items()]


def flow(value: Any) -> str:
    """A value on one line of YAML; words go without quotes where they read back the same."""
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_defaults=True)
    if isinstance(value, PartName):
        value = value.as_yaml
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if not isinstance(value, str):
        return yaml.safe_dump(value).split("\n")[0]
    try:
        if yaml.load(f"[{value}]", Loader) == [value]:  # noqa: S506 - Loader is a SafeLoader
            return value
    except yaml.YAMLError:
        pass
    return yaml.safe_dump(value, default_style='"', width=float("inf"), allow_unicode=True).strip()


def json_schema() -> str:
    """JSON schema of the YAML, for editors. `extends` is added: it is gone when a Config is made."""
    schema = Config.model_json_schema()
    schema["title"] = "transformer_mt config"
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "Another YAML file whose values are the defaults of this one.",
    }
    # A file may leave out what its base, the command line or the file's name says.
    schema["required"] = []
    for definition in typing.cast(dict[str, Any], schema["$defs"]).values():
        if definition.get("title") in ("DataConfig", "HubCorpus"):
            definition["required"] = [key for key in definition.get("required", []) if key == "split"]
    return json.dumps(_with_thousands(schema), indent=2, ensure_ascii=False) + "\n"


def _with_thousands(schema: Any) -> Any:
    """The schema with texts such as `10k` where a whole number may stand (Section)."""
    if isinstance(schema, list):
        return [_with_thousands(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "integer":
        kept = {name: value for name, value in schema.items() if name in ("title", "description", "default")}
        number = {name: value for name, value in schema.items() if name not in kept}
        return {**kept, "anyOf": [number, {"type": "string", "pattern": THOUSANDS}]}
    return {name: _with_thousands(value) for name, value in schema.items()}
