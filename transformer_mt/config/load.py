"""Read YAML files and `key=value` overrides into a Config, reporting all problems at once; write YAML."""

import json
import re
import shlex
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from transformer_mt.config.error_sentences import CORPORA, OVERRIDDEN, keys, part_keys, sentences
from transformer_mt.config.root import NAME_PATTERN, Config
from transformer_mt.errors import InputError, nearest
from transformer_mt.files import missing
from transformer_mt.settings.part import PartName
from transformer_mt.settings.section import OF_RUN, THOUSANDS

MOST_NODES = 100_000
"""Maximum number of nodes in a file, where an *alias counts as all the nodes that it stands for: a short file
of aliases that refer to other aliases could take forever to read.
"""


class Loader(yaml.SafeLoader):
    """A SafeLoader that reads `7e-4` as a number, `no` (Norwegian), dates and times as text, and 010 as ten.
    Raises YAMLError if a file has too many nodes.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._sizes: dict[yaml.Node, int] = {}
        """Nodes in each node, the node itself counted."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        node = super().compose_node(parent, index)
        if node is not None and node not in self._sizes:
            below = [node.value] if isinstance(node, yaml.ScalarNode) else node.value
            parts = [part for item in below for part in (item if isinstance(item, tuple) else (item,))]
            size = 1 + sum(self._sizes.get(part, 1) for part in parts if isinstance(part, yaml.Node))
            if size > MOST_NODES:
                raise yaml.YAMLError(f"it has more than {MOST_NODES:,} values, as its *aliases repeat them")
            self._sizes[node] = size
        return node


def _integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(node.value.replace("_", ""))


_CHANGED = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("bool", "float", "int", "timestamp"))

Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag not in _CHANGED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$"), list("tf"))
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf)$|^\.(nan|NaN)$"),
    list("-+0123456789."),
)
Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?\d[\d_]*$"), list("-+0123456789"))
Loader.add_constructor("tag:yaml.org,2002:int", _integer)


_WHOLE = (*CORPORA, "init_from", "data.new_languages")
"""Keys whose value is replaced, not merged: merging would mix the keys of two kinds of value."""

_PARTS = part_keys(Config)

_YAML_PROBLEMS = {
    "mapping values are not allowed here": "the keys of a section must begin in the same column",
    "'\\t' that cannot start any token": "lines must be indented with spaces, not with tabs",
    "expected <block end>": "the keys of a section must begin in the same column",
    "could not find expected ':'": "a key must be followed by a colon and a space",
}
"""Problems of PyYAML in our words."""

Kind = typing.TypeVar("Kind", bound=BaseModel)


def load_config(path: str | Path, overrides: list[str] | tuple[str, ...] = ()) -> Config:
    """Load the Config in the YAML file at `path`, follow `extends` and apply `key=value` overrides.

    Raises InputError with one line per mistake.
    """
    if not isinstance(path, str | Path):
        raise InputError(f"load_config() must get the path of a YAML file, but got {path!r}")
    if isinstance(overrides, str):
        raise InputError(f"overrides must be a list of key=value texts, but are one text: {overrides!r}")
    return load_yaml(Config, path, overrides)


def load_config_of_run(path: Path, settings: Mapping[str, Any]) -> Config:
    """Load the Config that a training wrote, with other values of some dotted keys."""
    return load_yaml(Config, path, settings=settings, context=OF_RUN)


def load_yaml(
    kind: type[Kind],
    path: str | Path,
    overrides: list[str] | tuple[str, ...] = (),
    settings: Mapping[str, Any] = {},
    context: dict[str, bool] | None = None,
) -> Kind:
    """Like `load_config`, but for any YAML file that has a `name`; `kind` defines its keys."""
    path = shipped(Path(path))
    values, where = _read(path, seen=())
    if not values and not overrides:
        raise InputError(f"{path}: a config must have keys, but is empty")
    if kind is Config and values.keys() >= {"base", "variants"}:
        raise InputError(
            f"{path}: must be the config of one training, but is a sweep; use transformer-mt sweep "
            f"{shlex.quote(str(path))}"
        )
    values = _copy_of(values)
    for override in overrides:
        _set(values, where, *_parsed(override))
    for dotted, value in settings.items():
        _set(values, where, dotted, value)
    if "name" not in values and not re.fullmatch(NAME_PATTERN, path.stem):
        raise InputError(
            f"{path}: the name of the file is the run's name, which must be letters, digits "
            f"and . + - _, with a letter or digit first, but is {path.stem!r}; set `name`, or rename the "
            "file"
        )
    values.setdefault("name", path.stem)
    try:
        return kind.model_validate(values, context=context)
    except ValidationError as error:
        origins = values.get("parts")
        lines = sentences(error, where, kind, origins if isinstance(origins, dict) else {})
        parts = [part for line in lines for part in ["\n", *line]]
        raise InputError(*parts[1:]) from None


def shipped(path: Path) -> Path:
    """The config of this name that ships with the package, if `path` is a bare name (`demo`) and no file."""
    if path.suffix or path.parent != Path() or path.exists() or path.is_symlink():
        return path
    package = Path(__file__).parent.parent
    folders = [package / "configs", package.parent / "configs"]  # of an installed package, and of a checkout
    files = [folder / f"{path.name}.yaml" for folder in folders if (folder / f"{path.name}.yaml").exists()]
    if files:
        return files[0]
    names = {file.stem: file.stem for folder in folders for file in folder.glob("*.yaml")}
    names |= {file.stem: str(file) for file in Path().glob("*.yaml")}
    near = nearest(path.name, names)
    hint = f"; did you mean {names[near]}?" if near else f", such as {', '.join(sorted(names)[:5])}"
    raise InputError(
        f"{path}: must be a config file, or one that ships with the package, but is neither{hint}"
    )


def _read(path: Path, seen: tuple[Path, ...]) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of the file, merged over the file it extends, and the location of each dotted key."""
    if path.resolve() in seen:
        raise InputError(f"{path}: `extends` must not form a cycle; remove it from one of the files")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if path.is_symlink():
            raise InputError(missing(path)) from None
        # Not the file that names this one in `extends`
        there = {p.stem: p for p in path.parent.glob("*.yaml") if p.resolve() not in seen}
        near = nearest(path.stem, there)
        hint = f"; did you mean {there[near]}?" if near else ""
        raise InputError(f"{path}: no such config file{hint}") from None
    except IsADirectoryError:
        run_config = path / "config.yaml"
        hint = f"; its config is {run_config}" if run_config.exists() else ""
        raise InputError(f"{path}: a config must be a YAML file, but is a folder{hint}") from None
    except UnicodeDecodeError as error:
        problem = f"byte {error.object[error.start]:#04x} is not"
        problem = "is UTF-16" if error.object[:2] in (b"\xff\xfe", b"\xfe\xff") else problem
        raise InputError(f"{path}: a config must be in UTF-8, but {problem}; save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: the config cannot be read: {error.strerror}") from None
    try:
        node = yaml.compose(text, Loader)
        where: dict[str, str] = {}
        if node is not None:
            _locate(node, path, "", where)
        values = yaml.load(text, Loader)  # noqa: S506 - Loader is a SafeLoader
    except RecursionError:
        raise InputError(
            f"{path}: a value must not contain itself; look at its &anchors and *aliases"
        ) from None
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark, error.problem or error.context or ""
        snippet = (mark and mark.get_snippet()) or ""
        place = f"\n{snippet}" if snippet.strip(" ^\n") else ""
        problem = next((ours for theirs, ours in _YAML_PROBLEMS.items() if theirs in problem), problem)
        line = mark.line + 1 if mark else 1
        if path.suffix not in (".yaml", ".yml"):
            raise InputError(
                f"{path}: a config must be YAML, but this is not; if it holds pairs, "
                f"`transformer-mt new en de {path}` writes one, with your languages"
            ) from None
        for number in range(max(0, line - 2), min(line, len(text.splitlines()))):
            written = text.splitlines()[number]
            if missing_colon := re.fullmatch(r"\s*([A-Za-z_]\w*)\s+[^:#\s][^:#]*", written):
                line, place = number + 1, f"\n{written}"
                problem = f"a colon is missing after `{missing_colon[1]}`"
            if missing_space := re.fullmatch(r"\s*([A-Za-z_]\w*:)[^\s:/]\S*\s*", written):
                line, place = number + 1, f"\n{written}"
                problem = f"a space is missing after `{missing_space[1]}`"
        raise InputError(f"{path}:{line}: this is not YAML: {problem}{place}") from None
    except InputError:
        raise
    except (
        yaml.YAMLError,
        ValueError,
        KeyError,
    ) as error:  # a value that does not fit its !!tag raises ValueError, or KeyError for !!bool
        raise InputError(f"{path}: this is not YAML: {str(error).splitlines()[0]}") from None
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise InputError(
            f"{path}: a config must be a mapping of keys to values, but is a {type(values).__name__}"
        )
    parent = values.pop("extends", None)
    if parent is None:
        return values, where
    if not isinstance(parent, str):
        raise InputError(f"{path}: `extends` must be the path of another YAML file, but is {parent!r}")
    base, base_where = _read(path.parent / parent, (*seen, path.resolve()))
    base.pop("name", None)  # a variant is another run: it never shares its base's folder by accident
    return _merge(base, values, base_where), base_where | where


def _copy_of(value: Any) -> Any:
    """A deep copy without shared objects: YAML loads an *alias as the same object as its anchor."""
    if isinstance(value, dict):
        return {key: _copy_of(item) for key, item in value.items()}
    return [_copy_of(item) for item in value] if isinstance(value, list) else value


def _locate(node: yaml.Node, path: Path, prefix: str, where: dict[str, str]) -> None:
    """Record the line of every key. InputError for a duplicate key: YAML would silently keep the last one."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            dotted = f"{prefix}{key.value}"
            if not isinstance(key, yaml.ScalarNode):
                raise InputError(
                    f"{path}:{key.start_mark.line + 1}: a key must be a word, but is a list or mapping"
                )
            if key.value in seen:
                raise InputError(
                    f"{path}:{key.start_mark.line + 1}: `{dotted}` must be given once, but is given twice"
                )
            seen.add(key.value)
            where[dotted] = f"{path}:{key.start_mark.line + 1}"
            _locate(value, path, f"{dotted}.", where)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            where[f"{prefix}{index}"] = f"{path}:{value.start_mark.line + 1}"
            _locate(value, path, f"{prefix}{index}.", where)
    elif not _is_unicode(str(node.value)):
        raise InputError(
            f"{path}:{node.start_mark.line + 1}: a value must be valid Unicode text, but holds half a "
            "surrogate pair"
        )


def _is_unicode(text: str) -> bool:
    """False if the text cannot be encoded: YAML can spell half a surrogate pair, such as "\\ud800"."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _merge(base: Any, over: Any, where: dict[str, str], dotted: str = "") -> Any:
    """Returns `base` with the values of `over`: sections are merged key by key, all other values (a corpus
    too) are replaced. Removes the lines of replaced values from `where`.
    """
    both = isinstance(base, dict) and isinstance(over, dict)
    is_other_part = both and dotted in _PARTS and base.keys() != over.keys()
    if not both or dotted in _WHOLE or is_other_part:
        _forget_below(where, dotted)
        return over
    merged = dict(base)
    for key, value in over.items():
        child = f"{dotted}.{key}" if dotted else str(key)
        merged[key] = _merge(base[key], value, where, child) if key in base else value
    return merged


def _forget_below(where: dict[str, str], dotted: str) -> None:
    for key in [key for key in where if key.startswith(f"{dotted}.")]:
        del where[key]


def _parsed(override: str) -> tuple[str, Any]:
    """The dotted key and the value of one `key=value`."""
    dotted, equals, text = override.partition("=")
    dotted = dotted.strip()
    if not equals or not dotted:
        raise InputError(f"an override must have the form key=value, but is `{override}`")
    try:
        value = yaml.load(text, Loader)  # noqa: S506 - Loader is a SafeLoader
        written = json.dumps(value, ensure_ascii=False, default=str)
    except (yaml.YAMLError, ValueError, KeyError, RecursionError):  # RecursionError: nested too deeply
        raise InputError(
            f"`{dotted}`: the value must be YAML, but is `{text[:200]}`; quote it if it is text"
        ) from None
    if not _is_unicode(written):
        raise InputError(f"`{dotted}`: the value must be valid Unicode text, but holds half a surrogate pair")
    return dotted, value


def _set(values: dict[str, Any], where: dict[str, str], dotted: str, value: Any) -> None:
    """Set a key in `values`; it may go into sections and lists (`data.test.0.split`)."""
    *parents, last = dotted.split(".")
    node: Any = values
    for depth, part in enumerate(parents):
        if isinstance(node, dict):
            below = dotted.split(".")[depth + 1]
            if node.get(part) is None or node[part] == below:  # a part by its name alone
                node[part] = {} if node.get(part) is None else {below: {}}
            node = node[part]
        elif isinstance(node, list) and part.isdecimal() and int(part) < len(node):
            node = node[int(part)]
        else:
            raise InputError(f"cannot set `{dotted}`: `{'.'.join(parents[: depth + 1])}` is not a section")
    if isinstance(node, dict):
        node[last] = _merge(node[last], value, where, dotted) if last in node else value
    elif isinstance(node, list) and last.isdecimal() and int(last) < len(node):
        node[int(last)] = value
    else:
        raise InputError(f"cannot set `{dotted}`: `{'.'.join(parents)}` is not a section")
    _forget_below(where, dotted)
    where[dotted] = OVERRIDDEN


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
    """JSON schema of the YAML, for editors. Adds `extends`, which is resolved before a Config is made."""
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
    """The schema, with strings such as `10k` allowed for whole numbers, as `Section` reads them."""
    if isinstance(schema, list):
        return [_with_thousands(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "integer":
        kept = {name: value for name, value in schema.items() if name in ("title", "description", "default")}
        number = {name: value for name, value in schema.items() if name not in kept}
        return {**kept, "anyOf": [number, {"type": "string", "pattern": THOUSANDS}]}
    return {name: _with_thousands(value) for name, value in schema.items()}
