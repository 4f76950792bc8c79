"""The reference pages are what the code says."""

import json
import re
import shlex
import tomllib

import pytest
import yaml

from scripts import transformer_figure, write_reference
from scripts.write_reference import config_page
from tests.conftest import ROOT
from tests.helpers.companions import needs
from tests.helpers.reference import reference_rows
from transformer_mt.cli import build_parser
from transformer_mt.cli.arguments import subcommands
from transformer_mt.config import Config
from transformer_mt.config.error_sentences import keys
from transformer_mt.config.load import json_schema, load_config
from transformer_mt.errors import InputError

REFERENCE = ROOT / "docs/reference"


@pytest.mark.parametrize("name", write_reference.PAGES)
@needs("cluster", "exchange", "lab", "serving", "inspection", "documents")
def test_a_generated_page_is_what_the_code_says(name):
    page = write_reference.PAGES[name]()
    assert page == (REFERENCE / name).read_text(encoding="utf-8"), "run `make reference`"


def test_the_picture_of_the_transformer_links_to_its_lines():
    assert transformer_figure.figure() == transformer_figure.PICTURE.read_text("utf-8"), (
        "run `make reference`"
    )


@needs("cluster")
def test_editors_find_the_keys_of_every_config():
    written = write_reference.SCHEMA.read_text(encoding="utf-8")
    assert written == json_schema(), "run `make reference`"
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(json.loads(written))
    for path in (ROOT / "configs").glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        if "\nvariants:" not in text and "\nforward:" not in text:  # of a sweep, and of a chain
            assert "\n# yaml-language-server: $schema=schema.json\n" in text, path.name
            assert list(check.iter_errors(yaml.safe_load(text))) == [], path.name
    assert list(check.iter_errors({"train": {"max_update": 5}})) and list(check.iter_errors({"seed": "x"}))


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


# Claims of the documentation about keys, commands and exports hold.


PAGES = sorted({ROOT / "README.md", *ROOT.glob("docs/**/*.md")})
GENERATED = {"config.md", "commands.md", "python.md", "files.md"}


def blocks(language):
    """(page, text) of each block of code in this language."""
    for page in PAGES:
        for text in re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M):
            yield page.relative_to(ROOT), text


def commands():
    """(page, words) of each command of ours in the blocks of shell commands."""
    for page, text in blocks("bash"):
        for line in text.replace("\\\n", " ").split("\n"):
            for command in re.split(r" (?:\||&&|>|<) ?", line):
                try:
                    words = shlex.split(command, comments=True)
                except ValueError:  # a command of several lines, such as a program in quotation marks
                    continue
                if words and words[0] in ("translate", "transformer-mt"):
                    yield page, words[words[0] == "transformer-mt" :]


@needs("cluster", "exchange", "lab", "serving", "inspection", "documents")
def test_the_options_of_every_command_in_the_pages_exist():
    parsers = subcommands(build_parser())
    checked = 0
    for page, (name, *words) in commands():
        if name.startswith("-"):
            continue
        assert name in parsers, f"{page}: {name}"
        nested = subcommands(parsers[name]) if name in ("plot", "config") else {}
        parser = nested.get(words[0], parsers[name]) if words else parsers[name]
        known = {option for action in parser._actions for option in action.option_strings}
        flags = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert flags <= known, f"{page}: {name} {flags - known}"
        checked += 1
    assert checked > 100


REMOVED = {"data.context", "data.memory"}
"""Keys of measured features that were removed; their pages say so."""


def test_the_keys_named_in_the_pages_exist():
    known = {dotted for dotted, _, _ in keys(Config)}
    sections = {dotted.partition(".")[0] for dotted in known if "." in dotted}
    checked = 0
    for page in PAGES:
        if page.name in GENERATED:
            continue
        for dotted in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)(?:[:=` ])", page.read_text(encoding="utf-8")):
            is_file = dotted.endswith((".safetensors", ".model", ".json", ".jsonl", ".bin"))
            if dotted.partition(".")[0] in sections and not is_file:
                assert dotted in known | REMOVED, f"{page.relative_to(ROOT)}: {dotted}"
                checked += 1
    assert checked > 100 and not REMOVED & known


@needs("cluster", "lab")
def test_the_yaml_in_the_pages_is_accepted(tmp_path):
    """Over the demo's config, as the examples leave out what they are not about."""
    checked, tops = 0, set(Config.model_fields) | {"extends"}
    for page, text in blocks("yaml"):
        values = yaml.safe_load(text)
        if not isinstance(values, dict) or not values.keys() <= tops:
            continue  # a sweep, a chain, another program's file
        file = tmp_path / "example.yaml"
        parent = {"init_from": "runs/parent"} if "lora" in text or "freeze" in text else {}
        values = {**parent, **values, "extends": str(ROOT / "configs/demo.yaml")}
        file.write_text(yaml.safe_dump(values), encoding="utf-8")
        try:
            load_config(file)
        except InputError as error:
            pytest.fail(f"{page}: {error}\n{text}")
        checked += 1
    assert checked > 15


@needs("exchange")
def test_the_exports_hold_what_their_page_says():
    from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2
    from transformer_mt.companions.exchange.export.to_huggingface import ToHuggingFace

    page = (ROOT / "docs/how_to/export.md").read_text(encoding="utf-8")

    def refused(target, key, values, *more):
        return {v for v in values if target.reasons_against(load_config("demo", [f"{key}={v}", *more]))}

    values = {row[0]: row[1] for row in reference_rows(config_page())}
    scores = set(values["model.attention.score.encoder"]) - {"concat", "location", "custom"}
    assert "`scaled_dot` attention and any norm, feed-forward network\nand position but ALiBi" in page
    assert "no windows and no hard attention" in page
    ours = ToCTranslate2()
    assert refused(ours, "model.attention.score", scores) == scores - {"scaled_dot"}
    assert refused(ours, "model.position", values["model.position"]) == {"alibi"}
    for key in ("model.norm", "model.norm_kind", "model.feed_forward"):
        assert refused(ours, key, values[key]) == set(), key
    assert refused(ours, "model.attention.window", [0, 3]) == {3}
    assert refused(ours, "model.attention.hard", ["true", "false"]) == {"true"}

    held = dict(re.findall(r"^\| (pre|post) \| `(?:Pegasus|Marian)[^|]*\| ([^|]*) \|", page, re.M))
    assert held.keys() == {"pre", "post"}
    theirs = ToHuggingFace()
    for norm, text in held.items():
        with_norm = f"model.norm={norm}", "model.position=sinusoidal"
        for key in ("model.feed_forward", "model.position"):
            allowed = set(re.findall("`([a-z_]+)`", text)) | set(re.findall(r"`[a-z_]+: ([a-z_]+)`", text))
            fits = set(values[key]) - refused(
                theirs, key, values[key], *with_norm[: 1 + (key != "model.position")]
            )
            assert fits == allowed & set(values[key]), (norm, key)
