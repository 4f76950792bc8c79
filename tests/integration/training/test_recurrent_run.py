"""A recurrent network through the real command line: trained, interrupted, translated with, looked at."""

import json

import pytest
import yaml
from safetensors.torch import load_file

from tests.conftest import TINY, train_interrupted
from tests.helpers.companions import needs
from transformer_mt.config.load import load_config
from transformer_mt.training import train

CHANGES = {
    "bahdanau": ["model.recurrent.cell=gru", "model.attention.score=additive", "model.num_decoder_layers=2"],
    "luong": ["model.attention.score=general", "model.attention.cross=local_p", "train.optimizer=muon"],
}


def config_of(folder, decoder):
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(TINY), encoding="utf-8")
    words = ["model.kind=recurrent", f"model.recurrent.decoder={decoder}", *CHANGES[decoder]]
    return load_config(file, [*words, "train.schedule=constant", "train.validate_every=24"])


@pytest.fixture(scope="module", params=CHANGES)
def recurrent_run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return train(config_of(folder, request.param), folder / "straight")


@pytest.mark.parametrize("recurrent_run", ["luong"], indirect=True)
def test_it_goes_on_bit_for_bit(recurrent_run, tmp_path):
    config = config_of(tmp_path, "luong")
    train_interrupted(config, tmp_path / "resumed", 14)
    folders = recurrent_run, train(config, tmp_path / "resumed")
    straight, resumed = (load_file(folder / "model.safetensors") for folder in folders)
    assert straight.keys() == resumed.keys()
    for name in straight:
        assert straight[name].equal(resumed[name]), name


def test_it_translates_whatever_the_batch(recurrent_run, tmp_path, cli):
    folder = recurrent_run
    text = tmp_path / "in.txt"
    text.write_text("The dog sleeps.\n\nThe old man sees a small house.\nThe cat.\n", encoding="utf-8")
    found = {}
    for beam, batch_tokens in ((1, 8), (1, 4096), (4, 40), (4, 4096)):
        asked = ["--beam", beam, "--batch-tokens", batch_tokens]
        status, found[beam, batch_tokens], _ = cli("translate", folder, "-i", text, *asked)
        assert status == 0 and found[beam, batch_tokens].count("\n") == 4
    assert found[1, 8] == found[1, 4096] and found[4, 40] == found[4, 4096]


@needs("exchange", "lab")
def test_it_can_be_looked_at_but_not_exported(recurrent_run, tmp_path, cli):
    pytest.importorskip("matplotlib")
    folder = recurrent_run
    look = ["plot", "attention", folder, "The dog sleeps.", "--target", "Der Hund.", "-o", tmp_path / "a.png"]
    status, out, _ = cli(*look, "--json")
    (one,) = json.loads(out)["maps"]
    assert status == 0 and one["title"] == "cross attention, its one layer, its one head"
    assert len(one["weights"]) == len(json.loads(out)["rows"])
    status, _, err = cli(*look, "--kind", "encoder")
    assert status == 2 and "--kind must be cross for this model, but is encoder" in err
    status, _, err = cli("export", folder, tmp_path / "exported")
    assert (
        status == 2
        and "CTranslate2 cannot hold this model: model.kind must be transformer, but is recurrent" in err
    )
    assert not (tmp_path / "exported").exists()
