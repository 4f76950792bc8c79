"""A package for Argos Translate, translated by Argos itself."""

import json
import zipfile

import pytest

pytest.importorskip("argostranslate")
pytest.importorskip("babel")

from transformer_mt.companions.exchange.export.export import export
from transformer_mt.companions.exchange.export.to_argos import ToArgos
from transformer_mt.errors import InputError
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.result import Translation


def test_a_package_is_proven_by_argos(tiny_run, tmp_path, said):
    out = tmp_path / "new" / "en_de.argosmodel"
    proof = export(RunFolder(tiny_run), out, ToArgos("int8"), None, "cc0-1.0")
    assert proof.quantization == "int8" and proof.sentences + proof.left_out == 40
    assert "the export has decode.beam 4 (here 5), decode.length_penalty 0.2 (here 1.0)" in said[0]
    with zipfile.ZipFile(out) as archive:
        names = archive.namelist()
        facts = json.loads(archive.read("translate-en_de-1_0/metadata.json"))
        card = archive.read("translate-en_de-1_0/README.md").decode()
    assert {name.split("/")[0] for name in names} == {"translate-en_de-1_0"}
    for name in ("model/model.bin", "model/config.json", "sentencepiece.model"):
        assert f"translate-en_de-1_0/{name}" in names
    expected = {"from_code": "en", "from_name": "English", "to_code": "de", "to_name": "German"}
    assert expected.items() <= facts.items() and facts["license"] == "cc0-1.0"
    assert 'package.install_from_path("en_de.argosmodel")' in card
    assert list(out.parent.iterdir()) == [out]


def test_two_vocabularies_are_refused(untrained_run, tmp_path):
    with pytest.raises(InputError, match=r"tokenizer.shared must be true, but is false\nTrain one with one"):
        export(RunFolder(untrained_run(shared=False)), tmp_path / "m.argosmodel", ToArgos(), None)


def test_underscores_become_spaces_as_in_argos_and_lines_it_divides_are_left_out():
    def expected(text, **others):
        return ToArgos().expected(Translation("x", text, -1.0, -1.0, [], **others))

    assert expected("snake_case").translation == "snake case"
    assert expected("x", flags=["truncated"]) is None and expected("x", segments=[{}]) is None


def test_languages_have_the_codes_of_argos(tiny_run):
    config = RunFolder(tiny_run).config()

    def codes(source, target):
        data = config.data.model_copy(update={"source_lang": source, "target_lang": target})
        facts = ToArgos().metadata(config.model_copy(update={"data": data}))
        return [facts[f"{side}_{what}"] for side in ("from", "to") for what in ("code", "name")]

    assert codes("zh_Hant", "pt-BR") == ["zt", "Traditional Chinese", "pb", "Brazilian Portuguese"]
    assert codes("de_CH", "xx") == ["de", "Swiss High German", "xx", "xx"]


@pytest.mark.parametrize("missing", ["argostranslate", "babel"])
def test_without_argos_the_error_names_the_extra(monkeypatch, missing):
    import importlib.util

    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else there(name))
    with pytest.raises(InputError, match=rf"needs {missing}: pip install 'transformer-mt\[argos\]'"):
        ToArgos()
