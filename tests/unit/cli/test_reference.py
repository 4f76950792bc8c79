"""The reference pages are what the code says."""

import json
import re
import tomllib

import pytest
import yaml

from scripts import write_reference
from tests.conftest import ROOT
from tests.helpers.companions import needs
from tests.helpers.reference import reference_rows
from transformer_mt.config.load import json_schema, load_config
from transformer_mt.errors import InputError

REFERENCE = ROOT / "docs/reference"


@pytest.mark.parametrize("name", write_reference.PAGES)
@needs("cluster", "exchange", "lab", "serving", "inspection", "documents")
def test_a_generated_page_is_what_the_code_says(name):
    page = write_reference.PAGES[name]()
    assert page == (REFERENCE / name).read_text(encoding="utf-8"), "run `make reference`"


@needs("cluster")
def test_editors_find_the_keys_of_every_config():
    jsonschema = pytest.importorskip("jsonschema")
    written = write_reference.SCHEMA.read_text(encoding="utf-8")
    assert written == json_schema(), "run `make reference`"
    check = jsonschema.Draft202012Validator(json.loads(written))
    for path in (ROOT / "configs").glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        if "\nvariants:" not in text and "\nforward:" not in text:  # of a sweep, and of a chain
            assert "\n# yaml-language-server: $schema=schema.json\n" in text, path.name
            assert list(check.iter_errors(yaml.safe_load(text))) == [], path.name
    assert list(check.iter_errors({"train": {"max_update": 5}})) and list(check.iter_errors({"seed": "x"}))


def test_every_key_has_its_values_default_and_meaning():
    page = write_reference.config_page()
    for row in (
        "| `train.warmup` † | integer ≥ 0 | `4000` | Updates over which",
        "| `decode.length_penalty` † | number ≥ 0.0, ≤ 10.0 | `1.0` | Exponent a of score",
        "| `model.norm` | `pre`, `post` | `pre` | The norm before",
        "| `train.batch_tokens` | `auto` or integer > 0 | `4096` | ",
        "| `data.train` | a corpus or list of corpora | required | Training pairs:",
        "| `model.attention.score.cross` | `scaled_dot`, `dot`,",
    ):
        assert row in re.sub(" +", " ", page)
    often_changed, _, tables = page.partition("## Reading the tables")
    assert often_changed.count("\n| `") == 12
    for line in tables.split("\n"):
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            assert len(cells) == 4 and all(cells), line


@needs("cluster", "lab")
def test_a_value_that_needs_another_key_names_it():
    """`concat` was refused without `kind: recurrent`, of which the page said nothing."""
    page = write_reference.config_page()
    names = {key.rpartition(".")[2] for key, *_ in reference_rows(page)} | {"objective"}
    refused, silent = 0, []
    for key, values, default, meaning, sentence in reference_rows(page):
        for value in values:
            if value == default:
                continue
            try:
                load_config("demo", [f"{key}={[value] if default[:1] == '[' else value}"])
            except InputError as error:
                refused += 1
                needed = set(re.findall(r"\w+", str(error))) & names - {key.rpartition(".")[2]}
                if not needed & set(re.findall(r"\w+", meaning + sentence)):
                    silent.append((key, value, str(error)))
    assert refused > 10 and silent == []


def test_every_field_of_the_python_api_has_a_meaning():
    for line in write_reference.python_page().split("\n"):
        if line.startswith("| `"):
            assert line.rstrip(" |").count("|") >= 2 and not line.replace(" ", "").endswith("||"), line


def test_the_configs_in_the_documents_are_valid(tmp_path):
    found = 0
    for document in (ROOT / "docs").glob("**/*.md"):
        for block in re.findall(r"```yaml\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL):
            if block.startswith("data:") and "  valid:" in block:  # a whole config
                (tmp_path / "a.yaml").write_text(block, encoding="utf-8")
                load_config(tmp_path / "a.yaml")
                found += 1
    assert found >= 2


def test_the_table_of_dependencies_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (REFERENCE / "dependencies.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.split("\n") if line.startswith("| ")
    ]
    listed = {(name, row[1].strip("`")) for row in rows[1:] for name in row[0].split(", ")}
    needed = {(_name(each), "") for each in project["dependencies"]}
    for extra, packages in project["optional-dependencies"].items():
        needed |= {(_name(each), extra) for each in packages}
    assert listed == needed
    assert all(row[2] and row[3] for row in rows[1:])


def _name(requirement):
    return re.match(r"[\w-]+", requirement)[0]


def test_the_page_of_a_runs_folder_names_every_file(tiny_run):
    text = (REFERENCE / "run_folder.md").read_text(encoding="utf-8")
    for path in tiny_run.iterdir():
        assert f"`{path.name}`" in text or f"`{path.name}/`" in text, path.name
