"""Write docs/reference/config.md, commands.md, python.md, files.md and configs/schema.json from the code."""

import argparse
import ast
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from transformer_mt import Translator, load_config, train
from transformer_mt.cli import build_parser
from transformer_mt.cli.options.arguments import subcommands
from transformer_mt.cli.options.model import add_search
from transformer_mt.config import Config
from transformer_mt.config.dump import flow, json_schema
from transformer_mt.config.keys import CORPORA
from transformer_mt.corpora.held_out import FromTrain
from transformer_mt.corpora.kind import Corpus
from transformer_mt.corpora.kinds import SETS
from transformer_mt.errors import InputError, WorkError
from transformer_mt.markdown import table
from transformer_mt.settings.section import Mark
from transformer_mt.translation.result import Candidate, Options, Translation

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs/reference"
SCHEMA = ROOT / "configs/schema.json"
"""The schema with which editors complete the keys of configs."""
GENERATED = "Written by `make reference` from the code. A test compares it with the code."


# The keys that configs and guides set most often: when to change them, and how.
OFTEN_CHANGED = {
    "data.source_lang": "Always: the language code of the source, such as `en`.",
    "data.target_lang": "Always: the language code of the target, such as `de`.",
    "data.train": "Always: your pairs, as one corpus or a list ([kinds of corpora](#corpora)).",
    "data.valid": "Always: a corpus, or `{from_train: {share: 0.01}}` to hold out training pairs.",
    "data.test": "To measure the model: a list of corpora, or `[{from_train: {share: 0.01}}]`.",
    "tokenizer.vocab_size": "8000 up to some 200,000 pairs, 16000 for 500,000, 32000 for millions.",
    "model.d_model": "256 up to some 200,000 pairs, 512 above, with `d_ff: 2048` and `num_heads: 8`.",
    "model.num_encoder_layers": "3 up to some 200,000 pairs, 4 to 6 above; `num_decoder_layers` likewise.",
    "model.dropout": "0.3 for 10,000 pairs, 0.2 for 30,000, 0.1 from 130,000 on.",
    "train.max_updates": "Raise it if `report.md` says that the loss still fell; train with `--fresh`.",
    "train.batch_tokens": "8192 and more on a GPU (`auto` fills its memory); less if memory runs out.",
    "train.learning_rate": "0.006 for small models, 0.002 for base (Muon); lower it if the loss jumps.",
}


def config_page() -> str:
    """Every key of the YAML: type, default, range, meaning."""
    parts = ["# Keys of the YAML", GENERATED]
    parts += ["## The twelve that people change", "Leave the others until you need them."]
    parts.append(table([(f"`{key}`", how) for key, how in OFTEN_CHANGED.items()], ["key", "when and how"]))
    parts += [
        "## Reading the tables",
        "A key with † may change when a run is resumed. The location of data may change, the data may not.",
    ]
    top = {name: field for name, field in Config.model_fields.items() if _section(name, field) is None}
    parts += ["## Top level", _keys(top, set())]
    for title, section, marks in _sections(Config, "", set()):
        parts += [f"## {title}", _sentence(section), _keys(section.model_fields, marks, f"{title}.")]
    parts += [
        "## Corpora",
        "The value of `data.train` and `data.valid`, and each item of `data.test`. The first key says which "
        "kind it is; a slice of `data.hub` needs `split` alone.",
    ]
    kinds = [kind for kind in SETS if not kind.is_held_out]
    common = Corpus.model_fields
    parts += ["### Every kind", "These keys are keys of every kind of corpus.", _keys(common, set())]
    for kind in kinds:
        others = {name: field for name, field in kind.model_fields.items() if name not in common}
        parts += [f"### {kind.__name__.removesuffix('Corpus')}", _sentence(kind), _keys(others, set())]
    parts += ["### Held out of training", _sentence(FromTrain)]
    parts.append(_keys(FromTrain.model_fields, set(), "from_train."))
    return _page(parts)


def _sections(
    section: type[BaseModel], prefix: str, marks: set[Mark]
) -> Iterator[tuple[str, type[BaseModel], set[Mark]]]:
    """(dotted path, section, its marks) of every section below, in order."""
    for name, field in section.model_fields.items():
        if below := _section(prefix + name, field):
            own = marks | _marks(field)
            yield prefix + name, below, own
            yield from _sections(below, f"{prefix}{name}.", own)


def _section(dotted: str, field: FieldInfo) -> type[BaseModel] | None:
    kinds = typing.get_args(field.annotation) or [field.annotation]
    found = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return found[0] if found and dotted not in CORPORA else None


def _marks(field: FieldInfo) -> set[Mark]:
    return {mark for mark in field.metadata if isinstance(mark, Mark)}


def _keys(of: dict[str, FieldInfo], marks: set[Mark], prefix: str = "") -> str:
    rows = []
    for name, field in of.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            continue  # a section of its own
        default = "required" if field.default is PydanticUndefined else f"`{flow(field.default)}`"
        changeable = " †" if Mark.CHANGEABLE in marks | _marks(field) else ""
        values = _escaped(_values(field.annotation, [field]))
        rows.append((f"`{prefix}{name}`{changeable}", values, default, _escaped(_meaning(field))))
    return _folded(f"{len(rows)} keys", table(rows, ["key", "values", "default", "meaning"]))


def _folded(title: str, content: str) -> str:
    """A table of more than two rows, which a reader opens: pages stay short."""
    if content.count("\n") < 4:
        return content
    return f'<details markdown="1">\n<summary>{title}</summary>\n\n{content}\n\n</details>'


def _values(annotation: Any, metadata: list[Any]) -> str:
    """The type of a key and the range of its values, in words."""
    if typing.get_origin(annotation) is typing.Annotated:
        inner, *more = typing.get_args(annotation)
        return _values(inner, [*metadata, *more])
    if typing.get_origin(annotation) is Literal:
        return ", ".join(f"`{word}`" for word in typing.get_args(annotation))
    if typing.get_origin(annotation) is list:
        (item,) = typing.get_args(annotation) or (Any,)
        words = _values(item, [])
        return "list of corpora" if words == "a corpus" else f"list of {words}"
    if members := typing.get_args(annotation):
        kinds = [_values(member, metadata) for member in members if member is not type(None)]
        return " or ".join(dict.fromkeys(kinds))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a corpus" if annotation.__name__.endswith("Corpus") else "a section"
    names = {int: "whole number", float: "number", str: "text", bool: "`true`, `false`"}
    bounds = [bound for each in _constraints(metadata) for bound in _bounds(each)]
    return names[annotation] + (f" {', '.join(bounds)}" if bounds and annotation is not bool else "")


def _constraints(metadata: list[Any]) -> Iterator[Any]:
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from item.metadata
        else:
            yield item


def _bounds(constraint: Any) -> list[str]:
    signs: dict[type, tuple[str, str]] = {
        annotated_types.Gt: ("gt", "> "),
        annotated_types.Ge: ("ge", "≥ "),
        annotated_types.Lt: ("lt", "< "),
        annotated_types.Le: ("le", "≤ "),
    }
    for kind, (name, sign) in signs.items():
        if isinstance(constraint, kind):
            return [f"{sign}{getattr(constraint, name):,}"]
    return []


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _sentence(thing: Any) -> str:
    """The docstring of a class or function as one paragraph."""
    return " ".join((inspect.getdoc(thing) or "").split())


def _page(parts: list[str]) -> str:
    """The parts as paragraphs; prose is wrapped, tables and code stay."""
    wrapped = [
        part
        if part.startswith(("|", "```", "#", "<details"))
        else textwrap.fill(part, 110, break_on_hyphens=False)
        for part in filter(None, parts)
    ]
    return "\n\n".join(wrapped) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def commands_page() -> str:
    """Every command with its options."""
    parts = ["# Commands", GENERATED, "`translate` is the same as `transformer-mt translate`."]
    searches = argparse.ArgumentParser(add_help=False)
    add_search(searches)
    of_search = [(_option(a), _help(a)) for a in searches._actions]
    for name, parser in _leaves(build_parser()):
        positional = [a for a in parser._actions if not a.option_strings and a.dest != "help"]
        options = [a for a in parser._actions if a.option_strings and a.dest != "help"]
        usage = " ".join([name, *(["[options]"] if options else []), *map(_shown, positional)])
        parts += [f"## {name}", parser.description or "", f"```\n{usage}\n```"]
        rows = [(f"`{_shown(a)}`", _help(a)) for a in positional]
        own = [(_option(a), _help(a)) for a in options]
        rows += [row for row in own if row not in of_search]
        parts.append(_folded(f"{len(rows)} arguments", table(rows, ["argument", "meaning"])) if rows else "")
        if any(row in of_search for row in own):
            parts.append("The options [of the search](#the-search) are options of this command, too.")
    parts += ["## The search", "Settings that override `decode` in the model's config."]
    parts.append(table(of_search, ["argument", "meaning"]))
    return _page(parts)


def _leaves(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """(name, parser) of every command that has no commands below it."""
    below = subcommands(parser)
    if not below:
        yield parser.prog, parser
    for child in below.values():
        yield from _leaves(child)


def _shown(action: argparse.Action) -> str:
    name = action.metavar if isinstance(action.metavar, str) else action.dest
    return {"*": f"[{name} ...]", "+": f"{name} [{name} ...]"}.get(str(action.nargs), name)


def _option(action: argparse.Action) -> str:
    """The names of an option and its values, as code; without the bar, which divides the cells of a table."""
    values = list(map(str, action.choices or str(action.metavar or action.dest.upper()).split("|")))
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    if action.nargs == 0:
        return names
    return (
        names + " " + (f"`{values[0]}`" if len(values) == 1 else ", ".join(f"`{value}`" for value in values))
    )


def _help(action: argparse.Action) -> str:
    return _escaped((action.help or "").replace("%%", "%"))


def python_page() -> str:
    """The public Python API."""
    parts = [
        "# Python",
        GENERATED,
        "```python\nfrom transformer_mt import Translator, load_config, train\n```",
    ]
    functions: list[tuple[str, Callable[..., Any]]] = [
        ("load_config", load_config),
        ("train", train),
        ("Translator.load", Translator.load),
        ("Translator.translate", Translator.translate),
        ("Translator.stream", Translator.stream),
    ]
    for name, function in functions:
        parts += [f"## {name}", f"```python\n{_signature(name, function)}\n```", _sentence(function)]
    for kind in (Options, Translation, Candidate):
        assert is_dataclass(kind)
        rows = [(f"`{f.name}`", _type(f.type), _doc(kind, f.name)) for f in fields(kind)]
        parts += [f"## {kind.__name__}", _sentence(kind), table(rows, ["field", "type", "meaning"])]
    errors = [(f"`transformer_mt.errors.{e.__name__}`", _sentence(e)) for e in (InputError, WorkError)]
    parts += ["## Errors", table(errors, ["error", "when"])]
    return _page(parts)


def _signature(name: str, function: Callable[..., Any]) -> str:
    """The call, a parameter a line if it has several."""
    signature = inspect.signature(function)
    parameters = [_short(str(p)) for p in signature.parameters.values() if p.name != "self"]
    result = _short(inspect.formatannotation(signature.return_annotation)).strip("'")
    inside = ", ".join(parameters) if len(parameters) < 2 else "\n    " + ",\n    ".join(parameters) + ",\n"
    return f"{name}({inside}) -> {result}"


def _short(text: str) -> str:
    """The text without the names of modules."""
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", text)


def _type(annotation: Any) -> str:
    """The type as code; without the bar, which divides the cells of a table."""
    return " or ".join(f"`{kind}`" for kind in _short(inspect.formatannotation(annotation)).split(" | "))


def _doc(kind: type, name: str) -> str:
    """The string under a field of a dataclass, which Python itself does not keep."""
    (body,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(body, ast.ClassDef)
    for statement, after in zip(body.body, body.body[1:]):
        is_field = isinstance(statement, ast.AnnAssign) and getattr(statement.target, "id", "") == name
        if is_field and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            return _escaped(" ".join(str(after.value.value).split()))
    return ""


def files_page() -> str:
    """Every package with what it holds; scripts and configs with their first line."""
    parts = [
        "# Files",
        GENERATED,
        "The first line of each file says what it holds: `head -n 1 transformer_mt/search/*.py`. The first "
        "lines of a package's `__init__.py` say what goes in, what comes out, and where to begin.",
    ]
    package = ROOT / "transformer_mt"
    packages = [
        (
            f"`{folder.relative_to(ROOT)}`",
            _escaped(_first_line(folder / "__init__.py")),
            str(len(list(folder.glob("*.py"))) - 1),
        )
        for folder in sorted({path.parent for path in package.rglob("*.py")} - {package})
    ]
    parts += ["## Packages", table(packages, ["package", "holds", "files"])]
    rows = [(f"`{path.name}`", _escaped(_first_line(path))) for path in sorted(ROOT.glob("scripts/*.py"))]
    parts += ["## scripts", table(rows, ["file", "does"])]
    rows = [
        (f"`{path.name}`", _escaped(_first_comment(path))) for path in sorted(ROOT.glob("configs/*.yaml"))
    ]
    parts += ["## configs", table(rows, ["file", "trains"])]
    return _page([" ".join(part.split()) if not part.startswith("|") else part for part in parts])


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def _first_line(path: Path) -> str:
    """The first paragraph of the module's docstring."""
    return " ".join(_docstring(path).split("\n\n")[0].split())


def _first_comment(path: Path) -> str:
    """The first sentence of the comment at the head of a config."""
    lines = path.read_text(encoding="utf-8").split("\n")
    comment = " ".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), lines))
    return re.split(r"(?<!et al)\. ", comment)[0].rstrip(".") + "."


PAGES = {
    "config.md": config_page,
    "commands.md": commands_page,
    "python.md": python_page,
    "files.md": files_page,
}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
    SCHEMA.write_text(json_schema(), encoding="utf-8")
