"""What a student is trained on."""

import json

import pytest

from transformer_mt import Translator
from transformer_mt.config.load import load_config
from transformer_mt.data import toy

pytest.importorskip("ctranslate2")


class TrainingStarts(Exception):
    pass


def test_a_student_is_trained_on_the_translations_of_its_teacher(
    tiny_run, write_config, tmp_path, monkeypatch
):
    from transformer_mt.experiments import distill

    trained_on = []

    def train(config, folder):
        trained_on.append(config.data.train)
        raise TrainingStarts

    monkeypatch.setattr(distill, "train", train)
    config = load_config(write_config(), ["data.train={toy: train, size: 40}", "name=student"])
    with pytest.raises(TrainingStarts):
        distill.distill(tiny_run, config, tmp_path / "student", print)
    (corpus,) = trained_on
    with open(corpus.file, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    pairs = list(toy.generate("train", 40))
    expected = Translator.load(tiny_run).translate([english for english, _ in pairs])
    assert corpus.columns == ["en", "de"]
    assert [row["en"] for row in rows] == [english for english, _ in pairs]
    assert [row["de"] for row in rows] == [result.translation for result in expected]
    assert [row["de"] for row in rows] != [german for _, german in pairs]
