"""Confidence and --retry, through the command line."""

import json
import shutil

import pytest
import yaml

from tests.conftest import TINY, train_interrupted
from tests.helpers.companions import needs
from transformer_mt.config import load_config
from transformer_mt.corpora import toy
from transformer_mt.training import train
from transformer_mt.translation.result import RETRIED_FLAGS, wider
from transformer_mt.translator import Translator

LINES = ["The dog sleeps.", "The cat sees 37 birds.", "", "An old teacher sings in the garden."]


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """A tiny run whose validation set is large enough."""
    folder = tmp_path_factory.mktemp("calibrated")
    values = {**TINY, "data": {**TINY["data"], "valid": {"toy": "valid", "size": 60}}}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    return train(load_config(folder / "tiny.yaml"), folder / "run")


def translated(cli, model, *words):
    status, out, err = cli("translate", model, "--json", *words, *LINES)
    assert status == 0, err
    return [json.loads(line) for line in out.splitlines()], err


def test_each_line_has_a_confidence(calibrated, cli):
    facts = json.loads((calibrated / "calibration.json").read_text(encoding="utf-8"))
    assert facts["sentences"] == 30 and len(facts["bins"]) == 10
    report = (calibrated / "report.md").read_text(encoding="utf-8")
    assert "## Confidence" in report and f"mean error is {facts['error_after']:.3f}" in report
    assert (calibrated / "reliability.png").read_bytes().startswith(b"\x89PNG")
    rows, _ = translated(cli, calibrated)
    assert rows[2]["confidence"] is None  # nothing was translated
    for row in rows[:2]:
        x = facts["intercept"] + facts["slope"] * row["log_prob"] / (len(row["tokens"]) + 1)
        known, distance = facts["familiarity"]["usual"]["en"], row["distance"]
        limit = (known["limit"] - known["mean"]) / known["deviation"]
        assert ("unfamiliar" in row["flags"]) == (distance > limit)
        share = limit / distance if distance > limit else 1
        assert row["confidence"] == pytest.approx(share / (1 + 2.718281828**-x), abs=1e-4)
        assert ("low_confidence" in row["flags"]) == (row["confidence"] < facts["low"])


def test_the_chrf_of_a_whole_text_is_expected_with_bounds(calibrated, tmp_path, cli):
    for name, side in zip(("src", "ref"), zip(*toy.generate("test", 60))):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    words = ["evaluate", calibrated, "--source", tmp_path / "src", "--reference", tmp_path / "ref"]
    (row,) = [json.loads(line) for line in cli(*words, "--json")[1].splitlines()]
    expected, chrf = row["expected"], {score["name"]: score["value"] for score in row["scores"]}["chrF"]
    assert expected["low"] <= chrf <= expected["high"] and expected["sentences"] == 60
    assert f"expected chrF {expected['chrf']:.1f} [" in cli(*words)[1]
    status, out, err = cli("translate", calibrated, "--json", "-i", tmp_path / "src")
    said = f"{expected['chrf']:.1f} [{expected['low']:.1f}, {expected['high']:.1f}] of these 60 lines"
    assert f"expected chrF {said}, by their confidence" in err and len(out.splitlines()) == 60
    assert "expected chrF" not in cli("translate", calibrated, "-i", tmp_path / "src")[2]


def test_no_chrf_is_expected_of_a_text_of_another_kind(calibrated, tmp_path, cli):
    """What the model knows of its own sentences it does not know of physics."""
    lines = ["Quantum computers factorise integers.", "Superposition collapses upon measurement."] * 30
    for name in ("src", "ref"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    words = ["evaluate", calibrated, "--source", tmp_path / "src", "--reference", tmp_path / "ref"]
    why = "the text is unlike what the model was trained on (60 of 60 lines are unfamiliar)"
    out = cli(*words)[1]
    assert f"chrF cannot be estimated: {why}" in out and "expected chrF" not in out
    (row,) = [json.loads(line) for line in cli(*words, "--json")[1].splitlines()]
    assert row["expected"] is None and why in row["withheld"]
    _, out, err = cli("translate", calibrated, "--json", "-i", tmp_path / "src")
    assert why in err and all("unfamiliar" in json.loads(line)["flags"] for line in out.splitlines())


@needs("exchange")
def test_an_export_has_the_confidence_of_its_run(calibrated, tmp_path, cli):
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    assert cli("export", calibrated, tmp_path / "out")[0] == 0
    rows, _ = translated(cli, tmp_path / "out")
    own, _ = translated(cli, calibrated)
    assert [r["confidence"] for r in rows[:2]] == pytest.approx([r["confidence"] for r in own[:2]], abs=1e-3)


def test_a_calibration_of_another_vocabulary_is_none(calibrated, tmp_path, cli):
    run = shutil.copytree(calibrated, tmp_path / "run")
    calibration = json.loads((run / "calibration.json").read_text(encoding="utf-8"))
    calibration["familiarity"]["pieces"] = calibration["familiarity"]["pieces"][:20]
    (run / "calibration.json").write_text(json.dumps(calibration), encoding="utf-8")
    assert [row["confidence"] for row in translated(cli, run)[0]] == [None] * 4


def test_other_weights_have_no_confidence_until_they_are_calibrated(calibrated, tmp_path, cli, monkeypatch):
    run = shutil.copytree(calibrated, tmp_path / "run")
    before = (run / "calibration.json").read_text(encoding="utf-8")
    config = load_config(run / "config.yaml", ["train.max_updates=90", "train.validate_every=12"])
    train_interrupted(config, run, 50)
    is_new = (run / "model.safetensors").read_bytes() != (calibrated / "model.safetensors").read_bytes()
    assert is_new and not (run / "calibration.json").exists() and before
    rows, _ = translated(cli, run)
    assert [row["confidence"] for row in rows] == [None] * 4


def test_suspicious_lines_are_translated_again_and_both_are_recorded(calibrated, cli):
    plain, _ = translated(cli, calibrated)
    rows, err = translated(cli, calibrated, "--retry")
    again = [bool(RETRIED_FLAGS & set(row["flags"])) for row in plain]
    assert again[1]  # so small a model does not copy the number
    for before, row, is_again in zip(plain, rows, again):
        assert (row["other"] is not None) == is_again
        if not is_again:
            assert row == before
            continue
        kept, other = row["translation"], row["other"]["translation"]
        first, second = (other, kept) if row["other"]["is_first"] else (kept, other)
        assert first == before["translation"] and second
        few = len(RETRIED_FLAGS & set(row["flags"]))
        assert few <= len(RETRIED_FLAGS & set(row["other"]["flags"]))
        assert f"line {row['line']}: translated again (" in err


def test_what_repeats_itself_is_not_kept(calibrated):
    translator = Translator.load(calibrated)
    (result,) = translator.translate(["The dog " * 12], retry=True)
    second = wider(translator.decode)
    assert second.no_repeat_ngram == 3 and second.beam == 10
    plain = Translator.load(calibrated).translate(["The dog " * 12])[0]
    if "repeating" in plain.flags:
        assert "repeating" not in result.flags


def test_options_of_single_lines_stay_with_their_lines(calibrated):
    translator = Translator.load(calibrated)
    lines, prefixes = ["The dog sleeps.", "The cat sees 37 birds."], ["Ein", "Zwei"]
    results = translator.translate(lines, prefixes=prefixes, protect=["dog", "37"], retry=True)
    assert [result.source for result in results] == lines
    assert "37" in results[1].translation and "dog" in results[0].translation
    assert all(r.translation.startswith(p) for r, p in zip(results, prefixes))
