"""From YAML files and `key=value` words to a Config, and back; every problem reported at once."""

import difflib
import json
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from transformer_mt.config import Config
from transformer_mt.errors import InputError

Kind = typing.TypeVar("Kind", bound=BaseModel)


class _Loader(yaml.SafeLoader):
    """Safe YAML without three traps of YAML 1.1: `7e-4` is a number, `no` is Norwegian and not false, a date is text."""


_CHANGED = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag not in _CHANGED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$"), list("tf"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf)$|^\.(nan|NaN)$"),
    list("-+0123456789."),
)

CORPORA = ("data.train", "data.valid")
"""Keys that are replaced as a whole: half of one corpus and half of another make no third."""

_ARMS = ("bool", "int", "constrained-int", "constrained-str", "ScoresConfig")
"""What pydantic calls the arms of our unions."""

_OF_A_UNION = {
    "train.compile": "true, false or auto",
    "train.batch_tokens": "auto or a whole number above 0",
    "decode.split_sentences": "true, false or auto",
}
"""What pydantic would tell in one line an arm."""

_OVERRIDDEN = "command line"
"""Where a value was said that no file says."""


def load_config(path: str | Path, overrides: list[str] | tuple[str, ...] = ()) -> Config:
    """The Config in the YAML file at `path`, its `extends` followed and `key=value` overrides applied.

    Raises InputError with one line for each thing that is wrong.
    """
    return load_yaml(Config, path, overrides)


def load_yaml(kind: type[Kind], path: str | Path, overrides: list[str] | tuple[str, ...] = ()) -> Kind:
    """The same for any YAML file with a `name`; `kind` says which keys it may have."""
    path = Path(path)
    values, where = _read(path, seen=())
    if kind is Config and values.keys() >= {"base", "variants"}:
        raise InputError(f"{path}: must be the config of one training, but is a sweep; use transformer-mt sweep {path}")
    values = _unshared(values)
    for override in overrides:
        _apply(values, where, override)
    values.setdefault("name", path.stem)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        lines = [_problem(problem, where, kind) for problem in error.errors() if not _of_the_other_arm(problem)]
        raise InputError("\n".join(dict.fromkeys(lines))) from None


def _read(path: Path, seen: tuple[Path, ...]) -> tuple[dict[str, Any], dict[str, str]]:
    """Values of the file over those it extends, and for each dotted path where it was said."""
    if path.resolve() in seen:
        raise InputError(f"{path}: `extends` must not come back to where it began; remove one of the two")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = difflib.get_close_matches(
            path.name, [p.name for p in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
        )
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise InputError(f"{path}: no such config file{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: a config must be a readable UTF-8 file: {error}") from None
    try:
        node = yaml.compose(text, _Loader)
        where: dict[str, str] = {}
        if node is not None:
            _locate(node, path, "", where)
        values = yaml.load(text, _Loader)  # noqa: S506 - _Loader is a SafeLoader
    except RecursionError:
        raise InputError(f"{path}: a value must not contain itself; look at its &anchors and *aliases") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path}:{line}: this is not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:  # a value that is not of the kind its !!tag says is a ValueError
        raise InputError(f"{path}: this is not YAML: {str(error).splitlines()[0]}") from None
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise InputError(f"{path}: a config must be a mapping of keys to values, but is a {type(values).__name__}")
    parent = values.pop("extends", None)
    if parent is None:
        return values, where
    if not isinstance(parent, str):
        raise InputError(f"{path}: `extends` must be the path of another YAML file, but is {parent!r}")
    base, base_where = _read(path.parent / parent, (*seen, path.resolve()))
    base.pop("name", None)  # a variant is another run: it never shares its base's folder by accident
    return _merge(base, values), base_where | where


def _unshared(value: Any) -> Any:
    """A copy in which each place has its own: what an *alias names twice is one object in YAML's values."""
    if isinstance(value, dict):
        return {key: _unshared(item) for key, item in value.items()}
    return [_unshared(item) for item in value] if isinstance(value, list) else value


def _locate(node: yaml.Node, path: Path, prefix: str, where: dict[str, str]) -> None:
    """Note the line of every key; refuse a key said twice, of which YAML would silently keep the last."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            dotted = f"{prefix}{key.value}"
            if not isinstance(key, yaml.ScalarNode):
                raise InputError(f"{path}:{key.start_mark.line + 1}: a key must be a word, but is a list or mapping")
            if key.value in seen:
                raise InputError(f"{path}:{key.start_mark.line + 1}: `{dotted}` must be given once, but is given twice")
            seen.add(key.value)
            where[dotted] = f"{path}:{key.start_mark.line + 1}"
            _locate(value, path, f"{dotted}.", where)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            where[f"{prefix}{index}"] = f"{path}:{value.start_mark.line + 1}"
            _locate(value, path, f"{prefix}{index}.", where)


def _merge(base: Any, over: Any, dotted: str = "") -> Any:
    """`over` on top of `base`: sections key by key, all else (a corpus too) as a whole."""
    if not (isinstance(base, dict) and isinstance(over, dict)) or dotted in CORPORA:
        return over
    merged = dict(base)
    for key, value in over.items():
        child = f"{dotted}.{key}" if dotted else str(key)
        merged[key] = _merge(base[key], value, child) if key in base else value
    return merged


def _apply(values: dict[str, Any], where: dict[str, str], override: str) -> None:
    """Set one `key=value` in `values`; the key may go into sections and lists (`data.test.0.split`)."""
    dotted, equals, text = override.partition("=")
    dotted = dotted.strip()
    if not equals or not dotted:
        raise InputError(f"an override must have the form key=value, but is `{override}`")
    try:
        value = yaml.load(text, _Loader)  # noqa: S506 - _Loader is a SafeLoader
    except (yaml.YAMLError, ValueError):
        raise InputError(f"`{dotted}`: the value must be YAML, but is `{text}`; quote it if it is text") from None
    *parents, last = dotted.split(".")
    place: Any = values
    for depth, part in enumerate(parents):
        if isinstance(place, dict):
            if place.get(part) is None:
                place[part] = {}
            place = place[part]
        elif isinstance(place, list) and part.isdigit() and int(part) < len(place):
            place = place[int(part)]
        else:
            raise InputError(f"`{'.'.join(parents[: depth + 1])}` must be a section to set `{dotted}` in, but is not")
    if isinstance(place, dict):
        place[last] = _merge(place[last], value, dotted) if last in place else value
    elif isinstance(place, list) and last.isdigit() and int(last) < len(place):
        place[int(last)] = value
    else:
        raise InputError(f"`{'.'.join(parents)}` must be a section to set `{dotted}` in, but is not")
    for place_below in [key for key in where if key.startswith(f"{dotted}.")]:
        del where[place_below]
    where[dotted] = _OVERRIDDEN


def _problem(error: Any, where: dict[str, str], section: type[BaseModel]) -> str:
    """One line: where it was said, what must be, what is, the nearest right name."""
    # pydantic puts the tags of unions into the path; ours are the corpus kinds and the arms of `compile`.
    loc = [str(part) for part in error["loc"]]
    loc = [
        part
        for i, part in enumerate(loc)
        if not (i >= 2 and part in ("hub", "files", "file", "toy") and _is_corpus(loc[:i]))
    ]
    loc = [part for part in loc if not part.startswith("literal[") and part not in _ARMS]
    dotted = ".".join(loc)
    place = next((where[".".join(loc[:n])] for n in range(len(loc), 0, -1) if ".".join(loc[:n]) in where), None)
    kind, value = error["type"], error["input"]
    if kind == "value_error" and any(
        said == _OVERRIDDEN and key.startswith(f"{dotted}.") for key, said in where.items()
    ):
        place = _OVERRIDDEN  # of keys that do not fit one another, the last word was the override's
    start = f"{place}: " if place else ""
    if kind == "extra_forbidden":
        return f"{start}`{dotted}` is not a key{_nearest(loc, section)}"
    if kind == "missing":
        return f"{start}`{dotted}` must be given"
    if kind == "value_error":
        return f"{start}{error['ctx']['error']}"
    if kind == "corpus_kind":
        return f"{start}`{dotted}` {error['msg']}, but is {value!r}"
    if dotted in _OF_A_UNION:
        return f"{start}`{dotted}` must be {_OF_A_UNION[dotted]}, but is {value!r}"
    if kind == "model_type":
        return f"{start}`{dotted}` must be a section of keys, but is {'empty' if value is None else repr(value)}"
    if kind == "string_pattern_mismatch":
        return f"{start}`{dotted}` must match {error['ctx']['pattern']}, but is {value!r}"
    must = error["msg"].replace("Input should be", "must be").replace("should have", "must have")
    near = ""
    if kind == "literal_error":
        options = [word.strip("'") for word in error["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        match = difflib.get_close_matches(str(value), options, n=1)
        near = f"; did you mean {match[0]!r}?" if match else ""
    return f"{start}`{dotted}` {must}, but is {value!r}{near}"


def _of_the_other_arm(error: Any) -> bool:
    """Of a union of a word and a section (ScoresConfig), a wrong word is a problem of the word alone, and a wrong section is
    one of the section; pydantic tells both.
    """
    arm = str(error["loc"][-1]) if error["loc"] else ""
    if isinstance(error["input"], dict):
        return arm.startswith("literal[")
    return error["type"] == "model_type" and arm.endswith("Config")


def _is_corpus(loc: list[str]) -> bool:
    return ".".join(loc) in CORPORA or (loc[:2] == ["data", "test"] and len(loc) == 3)


def _nearest(loc: list[str], section: type[BaseModel]) -> str:
    """`; did you mean ...?` for an unknown key: its very name elsewhere, then the nearest among its neighbours, then anywhere."""
    every = [dotted for dotted, _, _ in keys(section)]
    parent = ".".join(loc[:-1])
    neighbours = [k.rpartition(".")[2] for k in every if k.rpartition(".")[0] == parent]
    match = difflib.get_close_matches(loc[-1], neighbours, n=1)
    elsewhere = [k for k in every if k.rpartition(".")[2] == loc[-1]]
    if match and not elsewhere:
        return f"; did you mean `{'.'.join([*loc[:-1], match[0]])}`?"
    match = elsewhere[:1] or difflib.get_close_matches(".".join(loc), every, n=1, cutoff=0.8)
    return f"; did you mean `{match[0]}`?" if match else ""


def keys(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """(dotted path, meaning, default) of every key below `section`, in order."""
    for name, field in section.model_fields.items():
        yield prefix + name, field.description or "", field.default
        # A key may be a section, or a word or a section (model.attention.score); corpora are read as a whole.
        for kind in typing.get_args(field.annotation) or [field.annotation]:
            if isinstance(kind, type) and issubclass(kind, BaseModel) and prefix + name not in CORPORA:
                yield from keys(kind, f"{prefix}{name}.")


def dump_config(config: Config, comments: bool = False) -> str:
    """The resolved config as YAML that `load_config` reads back; with each key's meaning as a comment if asked."""
    meanings = {dotted: meaning for dotted, meaning, _ in keys(Config)}
    lines: list[str] = []

    def write(section: BaseModel, prefix: str, indent: str) -> None:
        for name in type(section).model_fields:
            value = getattr(section, name)
            comment = f"  # {meanings[prefix + name]}" if comments else ""
            if isinstance(value, BaseModel) and prefix + name not in CORPORA:
                lines.append(f"{indent}{name}:{comment}")
                write(value, f"{prefix}{name}.", indent + "  ")
            else:
                lines.append(f"{indent}{name}: {flow(value)}{comment}")

    write(config, "", "")
    return "\n".join(lines) + "\n"


def flow(value: Any) -> str:
    """A value on one line of YAML; words go without quotes where they read back the same."""
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if not isinstance(value, str):
        return yaml.safe_dump(value).split("\n")[0]
    try:
        if yaml.load(f"[{value}]", _Loader) == [value]:  # noqa: S506 - _Loader is a SafeLoader
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
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
