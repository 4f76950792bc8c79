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
    ((corpus,),) = trained_on
    with open(corpus.file, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    pairs = list(toy.generate("train", 40))
    expected = Translator.load(tiny_run).translate([english for english, _ in pairs])
    assert corpus.columns == ["en", "de"]
    assert [row["en"] for row in rows] == [english for english, _ in pairs]
    assert [row["de"] for row in rows] == [result.translation for result in expected]
    assert [row["de"] for row in rows] != [german for _, german in pairs]


def test_a_student_keeps_the_names_weights_and_tags_of_its_corpora(
    tiny_run, write_config, tmp_path, monkeypatch
):
    from transformer_mt.experiments import distill

    def train(config, folder):
        trained_on.extend(config.data.train)
        raise TrainingStarts

    trained_on = []
    monkeypatch.setattr(distill, "train", train)
    tagged = {"toy": "valid", "size": 10, "tag": "<bt>", "weight": 0.5, "name": "back"}
    entries = [{"toy": "train", "size": 20}, {**tagged, "filter": {"copy": True}}]
    config = load_config(write_config(data={"train": entries}), ["name=student"])
    with pytest.raises(TrainingStarts):
        distill.distill(tiny_run, config, tmp_path / "student", print)
    first, second = trained_on
    assert (first.tag, first.weight, second.tag, second.weight, second.name) == (None, 1, "<bt>", 0.5, "back")
    assert not second.filter.copy  # the sources have passed it
    for corpus, (split, size) in ((first, ("train", 20)), (second, ("valid", 10))):
        with open(corpus.file, encoding="utf-8") as file:
            sources = [json.loads(line)["en"] for line in file]
        assert sources == [english for english, _ in toy.generate(split, size)]
