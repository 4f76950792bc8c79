"""The shape of the project: which package may import which, and that the file map is the tree."""

import ast
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "transformer_mt"
MODULES = sorted(PACKAGE.rglob("*.py"))

# What a package (or a module, which then goes before its package) may import from the project, besides
# itself.
ALLOWED = {
    "errors": set(),
    "files": set(),
    "cache": set(),
    "cpu": set(),
    "markdown": set(),
    "memory": set(),
    "progress_bar": set(),
    "locks": {"errors"},
    "device": {"errors"},
    "checkpoint": {"errors", "files"},
    "plots": {"errors"},
    "config": {"errors"},
    "model": set(),
    "model.build": {"config.model"},
    "data": {"cpu", "cache", "config", "errors", "files", "markdown", "progress_bar", "locks"},
    "search": {"model"},
    "search.mbr": {"data.spaceless"},
    "search.rules": {"config"},
    "translation": {"cpu", "config", "data", "errors", "search"},
    "translation.ctranslate2_engine": {"cpu", "config", "data.tokenizer", "errors", "search.hypothesis"},
    "translation.torch_engine": {
        "checkpoint", "config", "data.tokenizer", "device", "errors", "model", "search",
    },
    "translation.attention_maps": {"data.tokenizer", "errors", "model"},
    "translation.translator": {
        "config", "data.languages", "data.tokenizer", "errors", "model.interface", "search",
    },
    "evaluation": {"config", "data", "errors", "files", "markdown", "progress_bar", "translation"},
    "training": {
        "", "cpu", "checkpoint", "config", "data", "device", "errors", "evaluation", "files", "locks",
        "markdown", "memory", "model", "plots", "progress_bar", "translation",
    },
    "export": {
        "cache", "config", "cpu", "data", "errors", "evaluation", "files", "model", "progress_bar",
        "translation",
    },
    "export.model_card": {
        "", "config", "data.drop_reasons", "data.languages", "files", "markdown", "training.report",
    },
    "experiments": {
        "", "checkpoint", "cpu", "config", "data", "device", "errors", "evaluation", "export", "files",
        "inspection", "locks", "markdown", "plots", "progress_bar", "training", "translation",
    },
    "new_config": {
        "config", "data", "errors", "files", "inspection", "progress_bar", "training",
    },
    "serving": {"config", "cpu", "data.languages", "data.lines", "documents", "errors", "translation"},
    "documents": {"data.spaceless", "errors", "translation"},
    "inspection": {"config", "data", "errors", "files", "markdown", "progress_bar"},
    "cli": {
        "", "config", "data", "device", "documents", "errors", "evaluation", "experiments", "export", "files",
        "inspection", "new_config", "plots", "progress_bar", "search", "serving", "training", "translation",
    },
    "__init__": {"cpu", "config", "training.loop", "translation.translator"},
    "__main__": {"cli"},
}  # fmt: skip


def module_name(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "transformer_mt":
            base = node.module.partition(".")[2]
            for alias in node.names:
                child = f"{base}.{alias.name}".strip(".")
                is_module = (PACKAGE / (child.replace(".", "/") + ".py")).exists() or (
                    PACKAGE / child.replace(".", "/")
                ).is_dir()
                yield child if is_module else base


# Arguments of other programs: git, torchrun, and our own command line as a process.
NAME_FLAGS = {"training.environment", "training.distributed", "experiments.sweep_jobs", "config.messages"}


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_only_the_command_line_knows_flags(path):
    """The library names settings (errors.Setting); cli/ shows the flag of each."""
    name = module_name(path)
    if name.startswith("cli") or name in NAME_FLAGS:
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]  # docstrings
    texts = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    flags = [n.value for n in texts if n not in documented and re.search(r"(^|[^-\w])--[a-z]", n.value)]
    assert not flags


def test_every_module_imports_without_fcntl():
    """Windows has no fcntl."""
    names = [f"transformer_mt.{module_name(path)}".rstrip(".") for path in MODULES]
    names = [name for name in names if not name.endswith(("__main__", "__init__"))]
    code = f"import sys, importlib; sys.modules['fcntl'] = None\nfor n in {names}: importlib.import_module(n)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_go_one_way(path):
    name = module_name(path)
    package = name.split(".")[0]
    allowed = ALLOWED.get(name, ALLOWED[package])
    for imported in imports(path):
        fits = any(imported == a or (a and imported.startswith(f"{a}.")) for a in allowed)
        assert fits or imported.split(".")[0] == package, (
            f"{name} must not import {imported or 'the package'}"
        )


def test_the_model_needs_torch_only():
    for path in (PACKAGE / "model").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            for name in names:
                assert name.split(".")[0] in {
                    "torch",
                    "math",
                    "collections",
                    "contextvars",
                    "contextlib",
                    "dataclasses",
                    "functools",
                    "threading",
                    "typing",
                    "transformer_mt",
                }, f"{path.name} imports {name}"


def test_the_file_map_is_the_tree():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block = re.search(r"## File map\n+```\n(.*?)```", text, re.DOTALL)[1]
    named, folders = set(), {0: ""}
    for line in block.split("\n"):
        if not line.strip():
            continue
        entry = line.split()[0]
        depth = len(line) - len(line.lstrip())
        parent = "".join(folder for d, folder in sorted(folders.items()) if d < depth)
        if entry.endswith("/"):
            folders = {d: f for d, f in folders.items() if d < depth} | {depth: entry}
        else:
            named.add(parent + entry)
            assert len(line.split()) > 1, f"{entry} has no line that says what it is"
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split("\n")
    if tracked == [""]:
        pytest.skip("not a git checkout")
    wanted = {
        f
        for f in tracked
        if re.match(r"(transformer_mt/.*\.py|scripts/.+|configs/.+)$", f) and (ROOT / f).exists()
    }
    wanted = {f for f in wanted if not f.endswith("/__init__.py")} | {"transformer_mt/__init__.py"}
    assert {f for f in named if f.startswith(("transformer_mt/", "scripts/", "configs/"))} == wanted


def test_files_are_read_at_one_sitting():
    long = {
        path.name: count
        for path in MODULES
        if (count := len(path.read_text(encoding="utf-8").split("\n"))) > 330
    }
    assert long == {}


def test_nothing_imports_the_command_line():
    for path in MODULES:
        if module_name(path).split(".")[0] not in ("cli", "__main__"):
            assert not [name for name in imports(path) if name.split(".")[0] == "cli"], path


def test_files_named_in_the_documents_exist():
    folders = (ROOT, PACKAGE, ROOT / "scripts")
    for document in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        for name in re.findall(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)`", document.read_text(encoding="utf-8")):
            assert any((folder / name).exists() for folder in folders), f"{document.name} names {name}"


def test_links_of_the_documents_lead_somewhere():
    for document in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            assert "://" in target or (document.parent / target).exists(), (
                f"{document.name} links to {target}"
            )


def test_every_document_is_in_the_index():
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    for document in ROOT.glob("docs/**/*.md"):
        name = str(document.relative_to(ROOT / "docs"))
        assert name == "index.md" or f"({name})" in index or name.startswith("measurements/"), name


def test_lines_of_the_documents_are_short():
    """Tables and code stay as they are."""
    for document in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        parts = document.read_text(encoding="utf-8").split("```")
        long = [
            line for part in parts[::2] for line in part.split("\n") if len(line) > 110 and line[0] != "|"
        ]
        assert long == [], document.name


def test_no_pickle_is_ever_loaded():
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert "pickle" not in text and "torch.load" not in text and "yaml.unsafe_load" not in text
