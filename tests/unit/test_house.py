"""The shape of the project: which package may import which, and what documents say of the files."""

import ast
import os
import re
import subprocess
import sys
import time
from functools import cache
from graphlib import TopologicalSorter

import pytest

import transformer_mt
from tests.conftest import ROOT
from tests.helpers.companions import needs
from transformer_mt.cli import build_parser
from transformer_mt.cli.arguments import subcommands
from transformer_mt.companion import companions, public_names
from transformer_mt.config import Config, load_config
from transformer_mt.config.error_sentences import CORPORA, keys

PACKAGE = ROOT / "transformer_mt"
MODULES = sorted(PACKAGE.rglob("*.py"))
CORE = [path for path in MODULES if PACKAGE / "companions" not in path.parents]

# Modules that everything but the model may import; they import one another only.
SMALL = {
    "checkpoint", "companion", "device", "errors", "files", "messages", "parts", "processes", "ranks",
    "version",
}  # fmt: skip


def module_name(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path):
    return list(_imports(path))


def _imports(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "transformer_mt":
            base = node.module.partition(".")[2]
            for alias in node.names:
                child = f"{base}.{alias.name}".strip(".")
                is_module = (PACKAGE / (child.replace(".", "/") + ".py")).exists() or (
                    PACKAGE / child.replace(".", "/")
                ).is_dir()
                yield child if is_module else base


# Arguments of other programs: git, torchrun, and our own command line as a process.
NAME_FLAGS = {
    "config.error_sentences", "companions.lab.sweep_jobs", "ranks", "run.report",
}  # fmt: skip


def has_commands(path):
    """True if a module of a companion is part of the command line: it makes arguments of a parser."""
    return (
        "companions" in path.parts
        and re.search("parser: (argparse.Argument)?Parser", path.read_text(encoding="utf-8")) is not None
    )


def test_only_the_command_line_knows_flags():
    """The library names settings (errors.Setting); cli/ shows the flag of each."""
    for path in MODULES:
        name, tree = module_name(path), tree_of(path)
        if name.startswith("cli") or name in NAME_FLAGS or has_commands(path):
            continue
        documented = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]  # docstrings
        texts = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        flags = [n.value for n in texts if n not in documented and re.search(r"(^|[^-\w])--[a-z]", n.value)]
        assert not flags, name


PACKAGES = {module_name(path).removesuffix(".__init__") for path in CORE if path.name == "__init__.py"}


def package_of(module):
    """The innermost package that a module is in; a module at the top is one by itself."""
    parts = module.split(".")
    outer = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((name for name in outer if name in PACKAGES), module)


def is_around(package, other):
    return f"{package}.".startswith(f"{other}.") or f"{other}.".startswith(f"{package}.")


def test_packages_import_one_another_in_one_direction():
    """The ground floor imports nothing above it, the networks need torch alone, and no way along imports
    leads back to a package.
    """
    above = {}
    for path in CORE:
        name = module_name(path).removesuffix(".__init__")
        package, others = package_of(name), {package_of(other) for other in imports(path)}
        if package in SMALL:
            assert others <= SMALL, f"{name} imports {others - SMALL}"
        is_network = package.split(".")[0] == "model" and name != "model.build_model"
        assert not (is_network and others & SMALL), f"{name} must need torch only"
        others = {other for other in others - SMALL if other and not is_around(package, other)}
        above.setdefault(package, set()).update(others)
    waiting = dict(above)
    while free := [package for package, others in waiting.items() if not others & waiting.keys()]:
        for package in free:
            del waiting[package]
    assert not waiting, f"these import one another in a circle, or stand above one: {sorted(waiting)}"


@pytest.mark.parametrize("name", companions())
def test_a_companion_imports_the_core_and_what_it_requires(name):
    """Imports within functions and for type checkers count."""
    known = {f"companions.{other}" for other in (name, *companions()[name].requires)}
    for path in (PACKAGE / "companions" / name).rglob("*.py"):
        others = {
            ".".join(other.split(".")[:2]) for other in imports(path) if other.startswith("companions.")
        }
        assert others <= known, path


def test_no_files_import_one_another_in_a_circle():
    """Imports within functions and for type checkers count."""
    modules = {module_name(path).removesuffix("__init__"): set(imports(path)) for path in MODULES}
    TopologicalSorter(modules).prepare()  # raises CycleError


def test_the_model_needs_torch_only():
    known = {
        "torch", "math", "collections", "contextvars", "contextlib", "dataclasses", "functools", "threading",
        "typing", "transformer_mt",
    }  # fmt: skip
    for path in (PACKAGE / "model").rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= known, path


def test_every_file_says_what_it_holds():
    """`make reference` writes the first line into docs/reference/files.md."""
    assert [path for path in MODULES if not ast.get_docstring(tree_of(path))] == []


@needs("inspection", "lab", "serving", "exchange", "documents", "cluster")
def test_files_named_in_the_documents_exist():
    folders = (ROOT, PACKAGE, ROOT / "scripts")
    for document in {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")} - {ROOT / "docs/reference/files.md"}:
        for name in re.findall(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)`", document.read_text(encoding="utf-8")):
            assert any((folder / name).exists() for folder in folders), f"{document.name} names {name}"


def test_the_walk_through_the_code_quotes_it():
    """Each line of code on the page stands in the file above it."""
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    walk = page[page.index("## A training step, line by line") : page.index("## Reading the Transformer")]
    parts = re.split(r"^\*\*`([^`]+)`\*\*", walk, flags=re.M)[1:]
    quoted = 0
    for name, rows in zip(parts[::2], parts[1::2]):
        code = [" ".join(line.split()) for line in (PACKAGE / name).read_text(encoding="utf-8").splitlines()]
        for line in re.findall(r"^\| `([^`]+)` \|", rows, flags=re.M):
            assert any(line in one for one in code), f"{name} has no {line}"
            quoted += 1
    assert quoted > 30


def test_files_named_in_the_code_exist():
    known = {
        path.name for folder in (PACKAGE, ROOT / "scripts", ROOT / "tests") for path in folder.rglob("*.py")
    }
    for path in PACKAGE.rglob("*.py"):
        for name in re.findall(r"\b[a-z_0-9]+\.py\b", path.read_text(encoding="utf-8")):
            assert name in known, f"{path} names {name}"


def test_documents_are_in_the_navigation_and_their_links_lead_somewhere():
    navigation = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    for document in ROOT.glob("docs/**/*.md"):
        assert f'"{document.relative_to(ROOT / "docs")}"' in navigation, document
    for document in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            assert "://" in target or (document.parent / target).exists(), f"{document} links to {target}"


def test_lines_of_the_documents_are_short():
    """Tables and code stay as they are."""
    for document in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        parts = document.read_text(encoding="utf-8").split("```")
        long = [
            line for part in parts[::2] for line in part.split("\n") if len(line) > 110 and line[0] != "|"
        ]
        assert long == [], document.name


def test_no_module_loads_pickles_or_needs_fcntl():
    """Windows has no fcntl."""
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        unwanted = ("pickle", "torch.load", "yaml.unsafe_load", "import fcntl")
        assert not [words for words in unwanted if words in text], path


# What a user meets stays small: keys and options.


MOST_KEYS, MOST_OPTIONS = 154, 15


def test_the_yaml_has_few_keys_besides_those_of_corpora():
    dotted = [path for path, _, _ in keys(Config) if not path.startswith((*CORPORA, "data.test"))]
    sections = {path.rpartition(".")[0] for path in dotted}
    assert len(set(dotted) - sections) <= MOST_KEYS


@needs("serving")
def test_the_help_shows_few_options():
    for name in ("translate", "evaluate", "serve"):
        shown = subcommands(build_parser())[name].shown
        assert sum(map(len, shown.values())) <= MOST_OPTIONS, name


# The names that a Python program finds in `transformer_mt`.


def test_dir_shows_the_public_names_alone():
    assert sorted(transformer_mt.__all__) == ["Translator", "__version__", "load_config", "register", "train"]
    assert dir(transformer_mt) == sorted([*transformer_mt.__all__, *public_names()])
    assert transformer_mt.load_config is load_config and callable(transformer_mt.train)


# Messages reach the terminal from wherever they come.


WRITER = """
import signal
from transformer_mt.messages import write

signal.signal(signal.SIGALRM, lambda *_: write("from the handler"))
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
for number in range(20_000):
    write(f"line {number}")
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_a_signals_handler_may_write_while_another_message_is_written():
    """Python's buffered streams refuse that: Ctrl-C ended a training without a checkpoint."""
    usual = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", WRITER]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=usual)
    time.sleep(1)  # the pipe is full, and a message waits in the middle of its writing
    _, said = process.communicate()
    assert process.returncode == 0, said[-500:]
    assert said.count("from the handler\n") > 5 and "line 19999\n" in said
