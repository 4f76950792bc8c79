"""Glossaries and memories on the command line, and the training for glossaries."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.helpers.companions import needs
from transformer_mt.cli.model_options import ModelRequest
from transformer_mt.cli.parsers import build_parser


@pytest.fixture
def terms(tmp_path):
    file = tmp_path / "terms.tsv"
    file.write_text("dog\tZebra\ngarden\tTiger\nnowhere\tnirgends\n", encoding="utf-8")
    return file


@needs("documents")
def test_terms_of_a_glossary_are_in_a_page(tiny_run, terms, cli):
    page = "<p>The <b>dog</b> sleeps.</p>"
    status, out, _ = cli("translate", tiny_run, "--glossary", terms, "--format", "html", page)
    assert status == 0 and "Zebra" in out and "<b>" in out


def test_evaluate_counts_the_terms(tiny_run, tmp_path, cli):
    """The terms counted are those that the references have; the result is not the model's own."""
    (tmp_path / "t.tsv").write_text("garden\tGarten\nbird\tVogel\ndog\tTiger\n", encoding="utf-8")
    status, out, _ = cli("evaluate", tiny_run, "--glossary", tmp_path / "t.tsv", "--beam", "2")
    rows = [line.split("  ") for line in out.split("\n") if line.startswith("  terms")]
    assert status == 0 and len(rows) == 2 and float(rows[0][1].split()[-1]) == 100.0
    (tmp_path / "t.tsv").write_text("zebra\tZebra\n", encoding="utf-8")
    _, none, err = cli("evaluate", tiny_run, "--glossary", tmp_path / "t.tsv", "--beam", "2")
    assert "  terms" not in none and "glossary: no pair of this set has a term on its left and" in err
    assert " terms in " in out and (tiny_run / "evaluation/other-test-0.scores.json").exists()


def test_a_broken_glossary_is_a_sentence(tiny_run, tmp_path, cli):
    file = tmp_path / "broken.tsv"
    file.write_text("dog\n", encoding="utf-8")
    status, out, err = cli("translate", tiny_run, "--glossary", file, "The dog sleeps.")
    assert (status, out) == (2, "") and "must have a source term and a target term" in err


@needs("documents")
def test_what_a_memory_has_is_translated_as_it_was(tiny_run, tmp_path, cli):
    file = tmp_path / "memory.tsv"
    file.write_text("en\tde\nThe dog sleeps.\tEin Hund, der schläft.\n", encoding="utf-8")
    status, out, _ = cli("translate", tiny_run, "--memory", file, "The dog sleeps.")
    assert (status, out) == (0, "Ein Hund, der schläft.\n")
    page = "<p>The dog <b>sleeps</b>.</p><p>The dog sleeps.</p>"
    status, out, _ = cli("translate", tiny_run, "--memory", file, "--format", "html", page)
    assert status == 0 and "<p>Ein Hund, der schläft.</p>" in out and out.count("Ein Hund") == 2
    status, out, _ = cli("translate", tiny_run, "--memory", file, "--json", "The dog sleeps.")
    assert json.loads(out)["flags"] == ["memory"]
    status, _, err = cli("translate", tiny_run, "--memory", tmp_path / "no.tmx", "The dog sleeps.")
    assert status == 2 and "no.tmx" in err and "Traceback" not in err


def test_the_translations_are_also_written_as_a_memory(tiny_run, tmp_path, cli):
    new = tmp_path / "new.tmx"
    status, out, _ = cli("translate", tiny_run, "The dog sleeps.", "A cat sings.", "--memory-out", new)
    assert status == 0
    again = cli("translate", tiny_run, "--memory", new, "--json", "A cat sings.")
    assert json.loads(again.out)["flags"] == ["memory"]
    assert json.loads(again.out)["translation"] == out.splitlines()[1]
    for words, message in (
        (["--memory-out", tmp_path / "new.txt"], "must end in .tmx"),
        (["--memory-out", new, "--memory", new], "must be a separate file"),
        (["--memory-out", new, "-o", tmp_path / "out", "--resume"], "leave out --resume"),
    ):
        status, _, err = cli("translate", tiny_run, "A dog.", *words)
        assert status == 2 and message in err and "Traceback" not in err


def test_a_glossary_that_changed_is_told_when_a_training_is_resumed(tmp_path, cli, write_config):
    (tmp_path / "terms.tsv").write_text("garden\tGarten\n", encoding="utf-8")
    terms = f"data.changes=[{{terms: {{file: {tmp_path / 'terms.tsv'}}}}}]"
    words = ["train", write_config(), terms, "train.validate_every=2", "--out", tmp_path / "run"]
    assert cli(*words, "train.max_updates=2").status == 0
    assert cli(*words, "train.max_updates=4").status == 0
    (tmp_path / "terms.tsv").write_text("bird\tVogel\n", encoding="utf-8")
    status, _, err = cli(*words, "train.max_updates=6")
    assert status == 2 and "data.changes.terms.file have changed since this run began" in err


@needs("exchange")
def test_an_export_follows_a_glossary_without_torch(tiny_run, terms, cli, tmp_path):
    pytest.importorskip("ctranslate2")
    assert cli("export", tiny_run, tmp_path / "ct2")[0] == 0
    words = ["translate", str(tmp_path / "ct2"), "--glossary", str(terms), "--json", "The dog sleeps."]
    code = (
        f"import sys\nfrom transformer_mt.cli import main\nassert main({words!r}) == 0\n"
        "print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    row, has_torch = result.stdout.splitlines()
    assert has_torch == "False" and "Zebra" in json.loads(row)["translation"], result.stderr
    assert "missing_term" not in json.loads(row)["flags"]


@needs("serving")
def test_a_server_with_a_glossary_searches_with_torch_as_translate_does():
    parse = build_parser("serve").parse_args
    request = ModelRequest.of(parse(["serve", "run", "--glossary", "en:de=terms.tsv"]), "run")
    assert request.engine.has_rules and not request.resources
    assert not ModelRequest.of(parse(["serve", "run", "--memory", "m.tsv"]), "run").engine.has_rules
