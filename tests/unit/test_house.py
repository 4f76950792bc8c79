"""The shape of the project: who may import whom, and that the README's map is the tree."""

import ast
import re
import subprocess

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "transformer_mt"
MODULES = sorted(PACKAGE.rglob("*.py"))

# What a room (or a file, which then goes before its room) may import from the package, besides itself.
ALLOWED = {
    "errors": set(),
    "files": set(),
    "locks": {"errors"},
    "cache": set(),
    "config_corpus": set(),
    "config_model": {"config_corpus"},
    "config": {"errors", "config_corpus", "config_model"},
    "config_file": {"config", "errors"},
    "device": {"errors"},
    "checkpoint": {"errors", "files"},
    "plots": {"errors"},
    "data": {"cache", "config", "config_corpus", "errors", "files", "locks"},
    "model.build": {"config_model"},
    "model": set(),
    "decoding.translator": {"config", "errors", "data.tokenizer", "model.interface"},
    "decoding.model_folder": {"config", "config_file", "errors"},
    "decoding.plan": {"config", "data.sentences", "data.tokenizer"},
    "decoding.splitting": {"data.scripts", "data.sentences"},
    "decoding.torch_engine": {"config", "errors", "device", "checkpoint", "data.tokenizer", "model"},
    "decoding.ctranslate2_engine": {"config", "errors", "data.tokenizer"},
    "decoding.engine": {"config"},
    "decoding.coverage": {"model"},
    "decoding.protect": {"errors"},
    "decoding.look": {"errors", "data.tokenizer", "model"},
    "decoding.scoring": {"errors", "data.lines"},
    "decoding.translation": {"config", "errors"},
    "decoding": {"data.scripts"},
    "export.distill": {
        "config",
        "config_corpus",
        "errors",
        "files",
        "locks",
        "device",
        "data",
        "decoding",
        "evaluation",
        "training",
    },
    "export": {
        "cache",
        "config",
        "config_file",
        "config_model",
        "errors",
        "files",
        "data",
        "decoding",
        "evaluation",
        "model",
    },
    "evaluation": {"config", "errors", "files", "plots", "data", "decoding"},
    "training": {
        "",
        "config",
        "config_file",
        "errors",
        "files",
        "locks",
        "device",
        "checkpoint",
        "data",
        "model",
        "decoding",
        "evaluation",
    },
    "sweep": {"", "config", "config_corpus", "config_file", "errors", "files", "locks", "evaluation", "plots"},
    "cli": {
        "",
        "config",
        "files",
        "config_corpus",
        "config_file",
        "errors",
        "device",
        "data",
        "decoding",
        "evaluation",
        "export",
        "plots",
        "sweep",
        "training",
    },
    "__init__": {"decoding.translator", "training.loop"},
    "__main__": {"cli"},
}


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


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_go_one_way(path):
    name = module_name(path)
    room = name.split(".")[0]
    allowed = ALLOWED.get(name, ALLOWED[room])
    for imported in imports(path):
        fits = any(imported == a or (a and imported.startswith(f"{a}.")) for a in allowed)
        assert fits or imported.split(".")[0] == room, f"{name} must not import {imported or 'the package'}"


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
                    "contextlib",
                    "dataclasses",
                    "typing",
                    "transformer_mt",
                }, f"{path.name} imports {name}"


def test_the_readmes_file_map_is_the_tree():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"## File map\n+```\n(.*?)```", readme, re.DOTALL)[1]
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
        if re.match(r"(transformer_mt/.*\.py|scripts/.+|configs/.+|docs/.+\.md)$", f) and (ROOT / f).exists()
    }
    wanted = {f for f in wanted if not f.endswith("/__init__.py")} | {"transformer_mt/__init__.py"}
    assert {f for f in named if f.startswith(("transformer_mt/", "scripts/", "configs/", "docs/"))} == wanted


def test_files_are_read_at_one_sitting():
    long = {path.name: count for path in MODULES if (count := len(path.read_text(encoding="utf-8").split("\n"))) > 330}
    assert long == {}


def test_no_pickle_is_ever_loaded():
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert "pickle" not in text and "torch.load" not in text and "yaml.unsafe_load" not in text
