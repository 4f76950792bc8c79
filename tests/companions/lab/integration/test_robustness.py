"""`evaluate --robust`: the test set as people also write; and `data.augment` in a training."""

import json
import shutil

import pytest

from tests.helpers.engines import TableEngine
from transformer_mt.companions.lab.evaluation_tables import forms, measure
from transformer_mt.config import load_config
from transformer_mt.corpora.held_out import EvaluationSet as Sentences
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.training import train
from transformer_mt.translator import Translator

SENTENCES = [
    ("A dog sleeps.", ("Ein Hund schläft.", "Ein Hund, der schläft.")),
    ("A cat sees the dog.", ("Eine Katze sieht den Hund.",)),
    ("Does a child laugh?", ("Lacht ein Kind?",)),
]
TEST = Sentences("test-0", "three", SENTENCES)


def test_the_forms_by_hand():
    by_name = forms(TEST, ("en", "de"))
    assert by_name["as it is"] == SENTENCES
    assert by_name["in capitals"][0] == ("A DOG SLEEPS.", ("EIN HUND SCHLÄFT.", "EIN HUND, DER SCHLÄFT."))
    assert by_name["in title case"][1] == ("A Cat Sees The Dog.", ("Eine Katze Sieht Den Hund.",))
    assert by_name["without final mark"][2] == ("Does a child laugh", ("Lacht ein Kind",))
    assert [references for _, references in by_name["with typos"]] == [targets for _, targets in SENTENCES]
    assert all(src != usual for (src, _), (usual, _) in zip(by_name["with typos"], SENTENCES))
    assert by_name["two sentences a line"] == [
        ("A dog sleeps. A cat sees the dog.", ("Ein Hund schläft. Eine Katze sieht den Hund.",))
    ]
    assert by_name["single words"][0] == ("dog", ()) and ("A", ()) not in by_name["single words"]
    assert forms(TEST, ("en", "de")) == by_name
    wide = Sentences("zh", "zh", [("A dog.", ("狗。",)), ("A cat.", ("猫。",))])
    assert forms(wide, ("zh", "zh"))["two sentences a line"] == [("A dog. A cat.", ("狗。猫。",))]


def test_a_variant_that_changes_nothing_is_not_reported_as_robust(said):
    thai = Sentences("th", "thai", [("ฉันไป", ("I go.",)), ("เขามา", ("He comes.",)), ("Ja", ("Yes",))])
    assert set(forms(thai, ("th", "en"))) == {
        "as it is", "in capitals", "in title case", "with typos", "two sentences a line", "single words",
    }  # fmt: skip
    assert "note: thai: 0 of 3 sentences differ without final mark" in said


def test_each_form_is_scored_against_its_own_references(tiny_run):
    """A translator that is right for all but typos, and repeats itself there and for single words."""
    tokenizer, config = Tokenizer.load(tiny_run), load_config(tiny_run / "config.yaml")
    config = config.model_copy(update={"decode": config.decode.model_copy(update={"split_sentences": False})})
    answers = {}
    for form, sentences in forms(TEST, ("en", "de")).items():
        for src, references in sentences:
            right = form not in ("with typos", "single words")
            answers[src] = [references[0]] if right else ["Hund Hund Hund Hund Hund Hund"]
    translator = Translator(TableEngine(tokenizer, answers), tokenizer, config)
    rows = {row.form: row for row in measure(translator, TEST, config.evaluate, None)}
    assert set(rows) == set(forms(TEST, ("en", "de")))
    for form in ("as it is", "in capitals", "in title case", "without final mark", "two sentences a line"):
        assert rows[form].scores[0].value == pytest.approx(100), form
        assert rows[form].suspicious == 0
    assert rows["with typos"].scores[0].value < 20 and rows["with typos"].suspicious == 1
    assert rows["single words"].scores == [] and rows["single words"].suspicious == 1


def test_the_command_prints_the_table_and_the_report_has_it(tiny_run, tmp_path, cli):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    status, out, err = cli("evaluate", run, "--robust")
    assert status == 0, err
    report = (run / "report.md").read_text(encoding="utf-8")
    assert "## Robustness to how people write" in report
    for text in (out, report):
        lines = [" ".join(line.split()) for line in text.split("\n")]
        assert any(line.startswith("| toy test | in capitals | 30 |") for line in lines)
        assert any(line.startswith("| toy test | two sentences a line | 15 |") for line in lines)
    status, out, _ = cli("evaluate", run, "--robust", "--json")
    objects = [json.loads(line) for line in out.splitlines()]
    assert [each["form"] for each in objects[1:]] == list(forms(TEST, ("en", "de")))
    assert all(set(each) >= {"corpus", "sentences", "scores", "suspicious"} for each in objects[1:])


def test_a_training_with_augmentation_is_another(write_config, tmp_path):
    data = {"train": {"toy": "train", "size": 120}, "valid": {"toy": "valid", "size": 5}, "test": []}
    augment = {"upper": 0.1, "typos": 0.3, "punctuation": 0.2}
    weights = [
        (train(load_config(write_config(data={**data, "augment": changes}, train={"max_updates": 2})),
               tmp_path / name) / "model.safetensors").read_bytes()
        for name, changes in (("plain", {}), ("augmented", augment))
    ]  # fmt: skip
    assert weights[0] != weights[1]
