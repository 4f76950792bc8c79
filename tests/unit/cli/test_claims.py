"""Claims of the documentation about keys, commands and exports hold."""

import re
import shlex

import pytest
import yaml

from scripts.write_reference import config_page
from tests.conftest import ROOT
from tests.helpers.companions import needs
from tests.helpers.reference import reference_rows
from transformer_mt.cli import build_parser
from transformer_mt.cli.arguments import subcommands
from transformer_mt.config import Config
from transformer_mt.config.error_sentences import keys
from transformer_mt.config.load import load_config
from transformer_mt.errors import InputError

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
