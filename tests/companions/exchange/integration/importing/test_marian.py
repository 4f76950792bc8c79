"""Models of Marian, as OPUS-MT's: imported, they compute what transformers computes, and go back whole."""

import json
import shutil

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

pytest.importorskip("transformers")

from tests.conftest import TINY
from tests.helpers.public_models import LEARNS, pieces_of, toy_lines, write_marian, write_npz
from transformer_mt import Translator, load_config, train
from transformer_mt.companions.exchange.export.export import export
from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2
from transformer_mt.companions.exchange.export.to_huggingface import ToHuggingFace
from transformer_mt.companions.exchange.importing.import_model import Languages, import_model
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK
from transformer_mt.errors import InputError
from transformer_mt.model.interface import NEVER
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.engines.torch_engine import load_model

VARIANTS = {
    "two vocabularies": {"separate": True},
    "language pieces": {"codes": ("fra", "de")},
    "relu, BPE": {"activation_function": "relu", "kind": "bpe"},
    "nothing tied": {"separate": True, "tie_word_embeddings": False},
}
NAME = "Helsinki-NLP/opus-mt-en-de"
# Searches of the two that go the same way: ours alone protects, divides and lowers what it translates.
PLAIN = {"split_sentences": False, "protect_usual": False, "lowercase_capitals": False}


def of_transformers(folder):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(folder)


@pytest.fixture(params=VARIANTS)
def public(request, tmp_path):
    """The folder of a model with random weights, and what is put before each of its sources."""
    folder = tmp_path / "opus-mt-en-de"
    write_marian(folder, **VARIANTS[request.param])
    return folder, [">>de<<"] if request.param == "language pieces" else []


def test_an_imported_model_computes_the_same_logits_from_the_same_text(public, tmp_path):
    folder, before = public
    run = import_model(folder, tmp_path / "run", NAME)
    ours, tokenizer = load_model(run, run.config())
    theirs, their_tokenizer = of_transformers(folder)
    ids_there = [numbering.foreign_ids() for numbering in tokenizer.numberings]
    written = [i for i in range(len(ids_there[-1])) if i not in (PAD, BOS)]
    unknown = "Ünknöwn 猫 dog"
    for src_text, tgt_text in [*zip(*toy_lines(8)), (unknown, "Ein Hund, 猫.")]:
        src = [*map(tokenizer.control_id, before), *tokenizer.encode_src([src_text])[0], EOS]
        tgt = tokenizer.encode_tgt([tgt_text])[0]
        inputs = their_tokenizer("".join(before) + src_text, return_tensors="pt")
        labels = their_tokenizer(text_target=tgt_text)["input_ids"]
        assert inputs["input_ids"][0].tolist() == [ids_there[0][i] for i in src]
        assert labels == [ids_there[-1][i] for i in [*tgt, EOS]]
        assert (
            tokenizer.decode_tgt(tgt) == their_tokenizer.decode(labels, skip_special_tokens=True)
            or UNK in tgt
        )
        start = [theirs.config.decoder_start_token_id, *labels[:-1]]
        with torch.inference_mode():
            expected = theirs(**inputs, decoder_input_ids=torch.tensor([start])).logits[0]
            found = ours.eval()(torch.tensor([src]), torch.ones(1, len(src), dtype=torch.bool),
                                torch.tensor([[BOS, *tgt]]))[0]  # fmt: skip
        difference = found[:, written] - expected[:, [ids_there[-1][i] for i in written]]
        assert difference.abs().max() < 1e-4
        assert found[:, [PAD, BOS]].max() < NEVER / 2  # <pad> has no part in the softmax


def test_an_imported_model_goes_back_with_the_same_tensors_and_vocabulary(public, tmp_path):
    folder, before = public
    run = import_model(folder, tmp_path / "run", NAME)
    from transformer_mt.companions.exchange.export.export import TrainedRun

    (tmp_path / "back").mkdir()
    trained = TrainedRun(run, run.config(), *load_model(run, run.config()))
    ToHuggingFace().write(trained, tmp_path / "back")
    old, new = load_file(folder / "model.safetensors"), load_file(tmp_path / "back" / "model.safetensors")
    for name, tensor in old.items():
        assert torch.equal(tensor.float(), new[name]), name
    for name in ("source.spm", "target.spm"):
        assert (folder / name).read_bytes() == (tmp_path / "back" / name).read_bytes()
    for path in folder.glob("*vocab.json"):
        assert json.loads(path.read_text()) == json.loads((tmp_path / "back" / path.name).read_text())
    (_, theirs), (model, ours) = of_transformers(folder), of_transformers(tmp_path / "back")
    text = "".join(before) + "The dog does not sleep."
    assert theirs(text)["input_ids"] == ours(text)["input_ids"]
    ids = theirs(text_target="Der Hund schläft nicht.")["input_ids"]
    assert ids == ours(text_target="Der Hund schläft nicht.")["input_ids"]
    assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids, skip_special_tokens=True)
    assert model.config.decoder_start_token_id == theirs.convert_tokens_to_ids("<pad>")


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A run that began from a public model with language pieces, and the probe of its exports."""
    folder = tmp_path_factory.mktemp("adapted")
    write_marian(folder / "opus-mt-en-de", scale=1.0, **VARIANTS["language pieces"])
    values = {key: value for key, value in TINY.items() if key not in ("tokenizer", "model")}
    values |= {"name": "adapted", "init_from": {"huggingface": str(folder / "opus-mt-en-de")}}
    # Limits as the other runtimes have them, whatever the source.
    values["decode"] = {"stop_early": True, "max_length": 100, "max_length_ratio": 100.0}
    values["train"] = {**TINY["train"], **LEARNS}
    (folder / "adapted.yaml").write_text(yaml.safe_dump(values))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train(load_config(folder / "adapted.yaml"))
    run = RunFolder(folder / "runs" / "adapted")
    # Translations that end before their limit: runtimes cut others at other places.
    ours = Translator.load(run.path, device="cpu", decode=PLAIN).translate(toy_lines(440)[0][400:])
    ended = [result.source for result in ours if "truncated" not in result.flags]
    assert len(ended) > 25
    (folder / "probe.txt").write_text("".join(f"{src}\n" for src in ended), encoding="utf-8")
    return run, str(folder / "probe.txt")


def test_what_was_exported_is_imported_again_and_is_the_run(adapted, tmp_path):
    run, probe = adapted
    assert export(run, tmp_path / "ct2", ToCTranslate2(), probe).largest_difference < 1e-4
    export(run, tmp_path / "opus-mt-en-de", ToHuggingFace(), probe)
    back = import_model(tmp_path / "opus-mt-en-de", tmp_path / "back", "mine")
    assert back.tokenizer().fingerprint == run.tokenizer().fingerprint
    trained = run.seen().own.trained.exact  # which does not leave with an export
    assert len(trained) > 100 and not back.seen().inherited.trained.has(trained).any()
    old, new = run.weights(), back.weights()
    assert old.keys() == new.keys()
    for name in old:
        rows = slice(1, None) if "embedding" in name else slice(None)  # nothing reads the row of PAD
        assert torch.equal(old[name][rows], new[name][rows]), name
    first, second = (Translator.load(folder.path, device="cpu", decode=PLAIN) for folder in (run, back))
    lines = toy_lines(20)[0]
    assert [r.translation for r in first.translate(lines)] == [r.translation for r in second.translate(lines)]


def test_a_public_folder_is_a_model_for_every_command(adapted, tmp_path, cli):
    run, probe = adapted
    public, to = tmp_path / "opus-mt-en-de", ["--to", "de"]
    export(run, public, ToHuggingFace(), probe)
    direct, again, own = (
        cli("translate", model, "The dog sleeps.", *to) for model in (public, public, run.path)
    )
    assert direct.status == 0 and direct.out == own.out == again.out
    assert "importing" in direct.err and "importing" not in again.err
    result = cli("import", public, "imported", *to)
    assert result.status == 0 and result.out.startswith("imported: en to ")
    assert cli("translate", "imported", "The dog sleeps.", *to).out == direct.out
    (tmp_path / "a.en").write_text("The dog sleeps.\n")
    (tmp_path / "a.de").write_text("Der Hund schläft.\n")
    pairs = ["--source", "a.en", "--reference", "a.de", *to]
    assert "BLEU" in cli("evaluate", public, *pairs).out
    assert "BLEU" in cli("compare", public, run.path, *pairs).out
    again = cli("import", public, "imported", *to)
    message = "imported: must be a new folder, but a folder is there; remove it or name another\n"
    assert again.status == 2 and again.err == message


def test_the_card_and_the_licence_come_along(tmp_path):
    folder = tmp_path / "opus-mt-en-de"
    write_marian(folder)
    run = import_model(folder, tmp_path / "run", NAME, revision="a" * 40)
    assert json.loads(run.imported_file.read_text()) == {
        "model": NAME, "revision": "a" * 40, "architecture": "marian", "license": "cc-by-4.0",
    }  # fmt: skip
    assert (run.papers / "README.md").read_text() == (folder / "README.md").read_text()
    config = run.config()
    assert (config.decode.beam, config.decode.max_length, config.data.max_length) == (4, 127, 128)
    assert (config.data.source_lang, config.data.target_lang) == ("en", "de")
    with pytest.raises(
        InputError, match=f"the corpora of {NAME} must be replaced by your own sentence pairs"
    ):
        next(iter(config.data.train.read(config.data.languages)))


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good") / "opus-mt-en-de"
    write_marian(folder)
    return folder


WRONG = {
    "model_type must be marian, pegasus or m2m_100, but is t5": {"model_type": "t5"},
    "scale_embedding must be True, but is False": {"scale_embedding": False},
    "normalize_embedding must be False, but is True": {"normalize_embedding": True},
    "normalize_before must be False, but is True": {"normalize_before": True},
    "activation_function must be relu, gelu, swish, silu, but is tanh": {"activation_function": "tanh"},
    "decoder_ffn_dim must be 64, but is 128": {"decoder_ffn_dim": 128},
    "share_encoder_decoder_embeddings must be True, as the vocabularies are, but is False": {
        "share_encoder_decoder_embeddings": False
    },
    "the weights must hold model.encoder.layers.2.self_attn.q_proj.weight, but do not": {"encoder_layers": 3},
    "the weights hold model.decoder.layers.1": {"decoder_layers": 1},
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_what_is_another_network_is_refused_by_its_field(good, tmp_path, message):
    folder = tmp_path / "opus-mt-en-de"
    shutil.copytree(good, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | WRONG[message]))
    with pytest.raises(InputError) as error:
        import_model(folder, tmp_path / "run", NAME)
    assert f"{folder}: {message}" in str(error.value)
    assert not (tmp_path / "run").exists()


def test_damaged_folders_are_told(good, tmp_path):
    def refused(file, content):
        folder = tmp_path / "opus-mt-en-de"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(good, folder)
        if content is None:
            (folder / file).unlink()
        else:
            (folder / file).write_bytes(content)
        with pytest.raises(InputError) as error:
            import_model(folder, tmp_path / "run", NAME)
        return str(error.value).removeprefix(f"{folder}").lstrip("/")

    missing = ": must hold source.spm and target.spm, but: No such file or directory"
    assert refused("source.spm", None) == missing
    assert ": the tokenizer must be a SentencePiece model, but is damaged" in refused("source.spm", b"x")
    assert refused("vocab.json", b"{") == "vocab.json: is not JSON in UTF-8; download it again"
    assert refused("vocab.json", b'{"a": 0}') == "vocab.json: must hold <unk>, </s>, <pad>, but has no <unk>"
    pieces = ["</s>", "<unk>", *(f"nothing{i}" for i in range(300)), "<pad>"]
    few = refused("vocab.json", json.dumps({piece: i for i, piece in enumerate(pieces)}).encode())
    assert few.startswith(": vocab.json must hold the tokens of source.spm, but has ")
    assert refused("model.safetensors", b"x").startswith(
        "model.safetensors: must be a file of weights, but is damaged"
    )
    none = refused("model.safetensors", None)
    assert none == ": must hold model.safetensors, but does not; download it again"
    (good / "pytorch_model.bin").write_bytes(b"x")
    assert "pytorch_model.bin, whose files may hold code" in refused("model.safetensors", None)
    (good / "pytorch_model.bin").unlink()


@pytest.mark.parametrize(
    "file, key, value, message",
    [
        ("config.json", "d_model", None, "must say d_model in its files, but does not; is it whole?"),
        ("config.json", "encoder_attention_heads", 5, "decoder_attention_heads must be 5, but is 4"),
        ("vocab.json", "▁The", "x", "must be the unchanged folder of a model"),
        ("generation_config.json", "num_beams", "many", "must be the unchanged folder of a model"),
    ],
)
def test_values_that_no_such_model_has_are_told(good, tmp_path, file, key, value, message):
    folder = tmp_path / "opus-mt-en-de"
    shutil.copytree(good, folder)
    facts = json.loads((folder / file).read_text()) | {key: value}
    if value is None:
        del facts[key]
    (folder / file).write_text(json.dumps(facts))
    with pytest.raises(InputError) as error:
        import_model(folder, tmp_path / "run", NAME)
    assert str(error.value).startswith(str(folder)) and message in str(error.value)


TIED = ("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")


@pytest.mark.parametrize(
    "separate, name", [(False, TIED[1]), (False, "lm_head.weight"), (True, TIED[2]), (True, "lm_head.weight")]
)
def test_a_tied_matrix_is_read_under_any_of_its_names(tmp_path, separate, name):
    """A file keeps one of them, and the hub's program chooses which."""
    folder = tmp_path / "opus-mt-en-de"
    write_marian(folder, separate=separate)
    expected = import_model(folder, tmp_path / "before", NAME).weights()
    tensors = load_file(folder / "model.safetensors")
    tied = (TIED[2], "lm_head.weight") if separate else (*TIED, "lm_head.weight")
    (matrix, *_) = [tensors.pop(other) for other in tied if other in tensors]
    save_file({**tensors, name: matrix}, folder / "model.safetensors")
    found = import_model(folder, tmp_path / "run", NAME).weights()
    assert all(torch.equal(found[key], tensor) for key, tensor in expected.items())


def test_old_names_of_groups_and_long_codes_are_the_codes_of_the_project(good, tmp_path):
    pytest.importorskip("babel")
    folder = tmp_path / "opus-mt-ROMANCE-en"
    shutil.copytree(good, folder)
    for source, target, expected in (("ROMANCE", "en", ("roa", "en")), ("eng", "deu", ("en", "de"))):
        said = {"source_lang": source, "target_lang": target}
        (folder / "tokenizer_config.json").write_text(json.dumps(said))
        run = import_model(folder, tmp_path / source, "Helsinki-NLP/opus-mt-ROMANCE-en")
        assert run.config().data.directions == [expected]


def test_a_file_of_marian_that_is_not_there_is_told(cli):
    for name in ("model.npz", "nothere/model.npz"):
        status, _, err = cli("translate", name, "A dog.")
        assert status == 2 and "no such" in err
        status, _, err = cli("import", name, "run")
        assert status == 2 and f"{name}: no such file" in err


def test_languages_are_named_where_the_model_does_not_and_folders_are_no_papers(good, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    (folder / "licenses").mkdir()
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(InputError, match="names no languages; give them with `from`"):
        import_model(folder, tmp_path / "run", NAME)
    run = import_model(folder, tmp_path / "run", NAME, Languages("en", "nds"))
    assert run.config().data.directions == [("en", "nds")]


def test_pieces_of_the_other_language_are_known_where_the_model_does_not_know_them(good, tmp_path):
    """The source's SentencePiece model has no "ß", but the target's has, and the vocabulary is one."""
    run = import_model(good, tmp_path / "run", NAME)
    tokenizer = run.tokenizer()
    assert "ß" not in pieces_of((good / "source.spm").read_bytes())
    ids = tokenizer.encode_src(["ß"])[0]
    assert UNK not in ids and "ß" in tokenizer.pieces_src(ids)


# Marian's own files: the same run as from their conversion for the Hugging Face hub, but for the positions:
# transformers' sinusoids are the paper's, Marian's end at another frequency.


@pytest.mark.parametrize("variant", [{"separate": True}, {"codes": ("fra", "de")}, {"kind": "bpe"}], ids=str)
def test_a_file_of_marian_becomes_the_same_run(tmp_path, variant):
    write_marian(tmp_path / "opus-mt-en-de", **variant)
    write_npz(tmp_path / "npz", tmp_path / "opus-mt-en-de")
    expected = import_model(tmp_path / "opus-mt-en-de", tmp_path / "expected", "model")
    languages = Languages("en", None if "codes" in variant else "de")
    imported = import_model(tmp_path / "npz", tmp_path / "found", "model", languages)
    assert imported.tokenizer().fingerprint == expected.tokenizer().fingerprint
    old, new = expected.weights(), imported.weights()
    assert old.keys() == new.keys() and all(torch.equal(old[name], new[name]) for name in old)
    here, there = imported.config(), expected.config()
    model = there.model.model_copy(update={"position": "sinusoidal_marian", "decoder_start": "zeros"})
    assert here.model.model_dump(exclude={"dropout"}) == model.model_dump(exclude={"dropout"})
    assert here.decode.beam == 6 and here.data.directions == there.data.directions


WRONG_NPZ = {
    "transformer-decoder-autoreg must be 'self-attention' or 'rnn', but is 'average-attention'": {
        "transformer-decoder-autoreg": "average-attention"
    },
    "type must be 'transformer', but is 's2s'": {"type": "s2s"},
    "transformer-ffn-activation must be relu or swish, but is gelu": {"transformer-ffn-activation": "gelu"},
    "transformer-postprocess must be 'dan', but is 'da'": {"transformer-postprocess": "da"},
    "transformer-preprocess must be '' or None, but is 'n'": {"transformer-preprocess": "n"},
    "the weights must hold encoder_l3_self_Wq, but do not": {"enc-depth": 3},
}


@pytest.mark.parametrize("message", WRONG_NPZ)
def test_what_is_another_network_is_refused_by_its_option(good, tmp_path, message):
    write_npz(tmp_path / "npz", good, **WRONG_NPZ[message])
    with pytest.raises(InputError) as error:
        import_model(tmp_path / "npz", tmp_path / "run", "model", Languages("en", "de"))
    assert f"{tmp_path}/npz/model.npz: {message}" in str(error.value)


def test_damaged_files_are_told(good, tmp_path):
    folder = tmp_path / "npz"

    def refused(message, model=folder):
        with pytest.raises(InputError, match=message):
            import_model(model, tmp_path / "run", "model", Languages("en", "de"))

    write_npz(folder, good)
    (folder / "vocab.src.yml").write_text("</s>: 0\n<unk>: 1\na\n")
    refused(r"vocab.src.yml:3: must be a token and its number, but is 'a'")
    (folder / "vocab.src.yml").unlink()
    refused("must hold the vocabularies that decoder.yml names")
    np.savez(folder / "second.npz", a=np.zeros(1))
    refused("must hold one .npz or .bin file, but holds 2; name the file")
    refused("must be a model of Marian, but cannot be read", folder / "second.npz")


def test_pieces_that_yaml_would_read_as_something_else_stay(tmp_path):
    from transformer_mt.companions.exchange.importing.marian import _pieces_of_yaml

    file = tmp_path / "vocab.yml"
    file.write_text(
        '"</s>": 0\n~: 1\ntrue: 2\n12: 3\n"\\"": 4\n\'it\'\'s\': 5\n"\\xe9": 6\n": ": 7\n? "▁long"\n: 8\n'
    )
    assert list(_pieces_of_yaml(file)) == ["</s>", "~", "true", "12", '"', "it's", "é", ": ", "▁long"]
