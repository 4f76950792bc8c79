"""Seventy mistakes in a YAML file, and the whole answer to each: where, what must be, what is, what to do."""

from pathlib import Path

import pytest
import yaml

from tests.helpers.companions import needs
from transformer_mt.config.load import load_config
from transformer_mt.errors import InputError

BEGINNING = """data:
  source_lang: en
  target_lang: de
  train: {toy: train, size: 100}
  valid: {toy: valid, size: 20}
"""
MISTAKES = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8"))


@needs("lab", "cluster")  # answers list what companions bring
@pytest.mark.parametrize("mistake", MISTAKES, ids=[each["text"].strip()[-60:] for each in MISTAKES])
def test_a_mistake_is_answered(tmp_path, monkeypatch, mistake):
    monkeypatch.chdir(tmp_path)
    whole = mistake["text"] if mistake["text"].startswith("data:") else BEGINNING + mistake["text"]
    (tmp_path / "x.yaml").write_text(whole, encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_config("x.yaml")
    assert str(error.value).replace("x.yaml:", "") == mistake["answer"].strip("\n")
