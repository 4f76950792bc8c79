"""The size of the product is a decision: raising a number here needs its reason in the commit."""

import ast
import re

from tests.conftest import ROOT
from tests.helpers.companions import needs
from transformer_mt.cli import build_parser
from transformer_mt.cli.options.arguments import subcommands
from transformer_mt.config import Config
from transformer_mt.config.keys import CORPORA, keys

CORE, MOST_LINES, MOST_KEYS, MOST_OPTIONS = 31_800, 51_240, 154, 15
COMPANIONS = {
    "browser": 900, "cluster": 950, "documents": 4_870, "exchange": 3_720, "inspection": 1_450,
    "lab": 4_460, "serving": 3_800, "teacher": 910,
}  # fmt: skip
MOST_JAVASCRIPT = 500  # of the page that an export for browsers has
MOST_TO_READ, LONGEST_FUNCTION = 1_500, 40


def lines(*folders):
    files = [file for folder in folders for file in folder.rglob("*.py")]
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def test_the_core_and_each_companion_stay_such_that_a_person_can_take_them_over():
    package = ROOT / "transformer_mt"
    of = {name: lines(package / "companions" / name) for name in COMPANIONS}
    assert all(of[name] <= most for name, most in COMPANIONS.items()), of
    assert lines(package) - sum(of.values()) <= CORE
    assert lines(package) <= MOST_LINES


def test_the_javascript_of_exported_pages_can_be_read():
    scripts = (ROOT / "transformer_mt/companions/browser/web").glob("*js")
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in scripts) <= MOST_JAVASCRIPT


def test_the_yaml_has_few_keys_besides_those_of_corpora():
    dotted = [path for path, _, _ in keys(Config) if not path.startswith((*CORPORA, "data.test"))]
    sections = {path.rpartition(".")[0] for path in dotted}
    assert len(set(dotted) - sections) <= MOST_KEYS


@needs("serving")
def test_the_help_shows_few_options():
    for name in ("translate", "evaluate", "serve"):
        shown = subcommands(build_parser())[name].shown
        assert sum(map(len, shown.values())) <= MOST_OPTIONS, name


def test_the_reading_path_is_short():
    """The files that architecture.md lists for a student."""
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    section = page.partition("## Reading the Transformer")[2].partition("\n## ")[0]
    files = [ROOT / "transformer_mt" / name for name in re.findall(r"`([a-z_/]+\.py)`", section)]
    texts = [file.read_text(encoding="utf-8") for file in files]
    assert len(files) >= 10 and sum(len(text.splitlines()) for text in texts) <= MOST_TO_READ
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < LONGEST_FUNCTION, node.name
