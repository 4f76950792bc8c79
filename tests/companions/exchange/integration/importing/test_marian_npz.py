"""Marian's own files: the same run as from their conversion for the Hugging Face hub."""

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from tests.helpers.public_models import write_marian, write_npz
from transformer_mt.companions.exchange.importing.import_model import Languages, import_model
from transformer_mt.errors import InputError


@pytest.mark.parametrize(
    "variant", [{}, {"separate": True}, {"codes": ("fra", "de")}, {"kind": "bpe"}], ids=str
)
def test_a_file_of_marian_becomes_the_same_run(tmp_path, variant):
    write_marian(tmp_path / "opus-mt-en-de", **variant)
    write_npz(tmp_path / "npz", tmp_path / "opus-mt-en-de")
    expected = import_model(tmp_path / "opus-mt-en-de", tmp_path / "expected", "model")
    found = import_model(tmp_path / "npz", tmp_path / "found", "model", Languages("en"
                         , None if "codes" in variant else "de"))  # fmt: skip
    assert found.tokenizer().fingerprint == expected.tokenizer().fingerprint
    old, new = expected.weights(), found.weights()
    assert old.keys() == new.keys() and all(torch.equal(old[name], new[name]) for name in old)
    assert found.config().model.model_dump(exclude={"dropout"}) == expected.config().model.model_dump(
        exclude={"dropout"}
    )
    assert (
        found.config().decode.beam == 6
        and found.config().data.directions == expected.config().data.directions
    )


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    folder = tmp_path_factory.mktemp("public") / "opus-mt-en-de"
    write_marian(folder)
    return folder


WRONG = {
    "transformer-decoder-autoreg must be 'self-attention', but is 'rnn'": {
        "transformer-decoder-autoreg": "rnn"
    },
    "transformer-decoder-autoreg must be 'self-attention', but is 'average-attention'": {
        "transformer-decoder-autoreg": "average-attention"
    },
    "type must be 'transformer', but is 's2s'": {"type": "s2s"},
    "transformer-ffn-activation must be relu or swish, but is gelu": {"transformer-ffn-activation": "gelu"},
    "transformer-preprocess, -postprocess and -postprocess-top must be": {"transformer-postprocess": "da"},
    "the weights must hold encoder_l3_self_Wq, but do not": {"enc-depth": 3},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_another_network_is_refused_by_its_option(public, tmp_path, message):
    write_npz(tmp_path / "npz", public, **WRONG[message])
    with pytest.raises(InputError) as error:
        import_model(tmp_path / "npz", tmp_path / "run", "model", Languages("en", "de"))
    assert f"{tmp_path}/npz/model.npz: {message}" in str(error.value)


def test_damaged_files_are_told(public, tmp_path):
    write_npz(tmp_path / "npz", public)
    (tmp_path / "npz" / "vocab.src.yml").write_text("</s>: 0\n<unk>: 1\na\n")
    with pytest.raises(InputError, match=r"vocab.src.yml:3: must be a token and its number, but is 'a'"):
        import_model(tmp_path / "npz", tmp_path / "run", "model", Languages("en", "de"))
    (tmp_path / "npz" / "vocab.src.yml").unlink()
    with pytest.raises(InputError, match="must hold the vocabularies that decoder.yml names"):
        import_model(tmp_path / "npz", tmp_path / "run", "model", Languages("en", "de"))
    np.savez(tmp_path / "npz" / "second.npz", a=np.zeros(1))
    with pytest.raises(InputError, match="must hold one .npz file, but holds 2; name the file"):
        import_model(tmp_path / "npz", tmp_path / "run", "model", Languages("en", "de"))
    with pytest.raises(InputError, match="must be a model of Marian, but cannot be read"):
        import_model(tmp_path / "npz" / "second.npz", tmp_path / "run", "model", Languages("en", "de"))


def test_pieces_that_yaml_would_read_as_something_else_stay(public, tmp_path):
    from transformer_mt.companions.exchange.importing.marian import _pieces_of_yaml

    file = tmp_path / "vocab.yml"
    file.write_text(
        '"</s>": 0\n~: 1\ntrue: 2\n12: 3\n"\\"": 4\n\'it\'\'s\': 5\n"\\xe9": 6\n": ": 7\n? "▁long"\n: 8\n'
    )
    assert list(_pieces_of_yaml(file)) == ["</s>", "~", "true", "12", '"', "it's", "é", ": ", "▁long"]
