"""What a user meets stays small: keys, options and the path that a student reads."""

import ast
import re

from tests.conftest import ROOT
from tests.helpers.companions import needs
from transformer_mt.cli import build_parser
from transformer_mt.cli.arguments import subcommands
from transformer_mt.config import Config
from transformer_mt.config.error_sentences import CORPORA, keys

MOST_KEYS, MOST_OPTIONS = 154, 15
MOST_TO_READ, LONGEST_FUNCTION = 2_700, 120


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
