"""Models of M2M-100 and NLLB: imported, they compute what transformers computes, and go back whole."""

import pytest
import torch
import yaml
from safetensors.torch import load_file

pytest.importorskip("transformers")

from tests.conftest import TINY
from tests.helpers.near_ties import differ_by_rounding
from tests.helpers.public_models import LEARNS, toy_lines, write_nllb
from transformer_mt import Translator, load_config, train
from transformer_mt.companions.exchange.export.export import TrainedRun, export
from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2
from transformer_mt.companions.exchange.export.to_huggingface import ToHuggingFace
from transformer_mt.companions.exchange.importing.import_model import Languages, import_model
from transformer_mt.corpora import toy
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS
from transformer_mt.errors import InputError
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.engines.torch_engine import load_model

PLAIN = {"split_sentences": False, "protect_usual": False, "lowercase_capitals": False}


def is_decided(result):
    """False where another translation is nearly as likely: rounding decides between the two."""
    return len(result.n_best) < 2 or result.n_best[0].score - result.n_best[1].score > 1e-3


def of_transformers(folder):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(folder)


@pytest.fixture(params=["nllb", "m2m"])
def public(request, tmp_path):
    write_nllb(tmp_path / request.param, is_m2m=request.param == "m2m")
    return tmp_path / request.param


def test_an_imported_model_computes_the_same_logits_from_the_same_text(public, tmp_path):
    run = import_model(public, tmp_path / "run", "facebook/model")
    data = run.config().data
    ours, tokenizer = load_model(run, run.config())
    theirs, their_tokenizer = of_transformers(public)
    m2m_ids = tokenizer.numberings[0].foreign_ids()
    before, begin = (tokenizer.control_id(f">>{code}<<") for code in data.languages)
    for src_text, tgt_text in [*zip(*toy_lines(8)), ("Ünknöwn 猫 dog", "Ein Hund, 猫.")]:
        src = [before, *tokenizer.encode_src([src_text])[0], EOS]
        tgt = [begin, *tokenizer.encode_tgt([tgt_text])[0]]
        inputs = their_tokenizer(src_text, return_tensors="pt")
        labels = their_tokenizer(text_target=tgt_text)["input_ids"]
        assert inputs["input_ids"][0].tolist() == [m2m_ids[i] for i in src]
        assert labels == [m2m_ids[i] for i in [*tgt, EOS]]
        start = [theirs.config.decoder_start_token_id, *labels[:-1]]
        with torch.inference_mode():
            expected = theirs(**inputs, decoder_input_ids=torch.tensor([start])).logits[0]
            logits = ours.eval()(torch.tensor([src]), torch.ones(1, len(src), dtype=torch.bool),
                                 torch.tensor([[BOS, *tgt]]))[0]  # fmt: skip
        assert (logits - expected[:, m2m_ids]).abs().max() < 1e-4


def test_an_imported_model_goes_back_with_the_same_tensors_and_vocabulary(public, tmp_path):
    run = import_model(public, tmp_path / "run", "facebook/model")
    (tmp_path / "back").mkdir()
    trained = TrainedRun(run, run.config(), *load_model(run, run.config()))
    ToHuggingFace().write(trained, tmp_path / "back")
    old, new = load_file(public / "model.safetensors"), load_file(tmp_path / "back" / "model.safetensors")
    assert old.keys() == new.keys()  # rows of no piece, too
    for name, tensor in old.items():
        assert torch.equal(tensor.float(), new[name]), name
    (_, theirs), (_, ours) = of_transformers(public), of_transformers(tmp_path / "back")
    for text in toy_lines(50)[0]:
        assert theirs(text)["input_ids"] == ours(text)["input_ids"]
        assert theirs(text_target=text)["input_ids"] == ours(text_target=text)["input_ids"]
    assert theirs.get_vocab() == ours.get_vocab()
    assert (
        import_model(tmp_path / "back", tmp_path / "again", "x").tokenizer().fingerprint
        == run.tokenizer().fingerprint
    )


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """The folder of a run that began from a model of NLLB."""
    folder = tmp_path_factory.mktemp("adapted")
    write_nllb(folder / "nllb", scale=1.0)
    values = {key: value for key, value in TINY.items() if key not in ("tokenizer", "model")}
    values |= {"name": "adapted", "init_from": {"huggingface": str(folder / "nllb")}}
    for name, size in (("train", 1500), ("valid", 40)):
        for side, lines in zip(("en", "de"), zip(*toy.generate(name, size))):
            (folder / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    sets = {
        name: {"source": str(folder / f"{name}.en"), "target": str(folder / f"{name}.de")}
        for name in ("train", "valid")
    }
    values["data"] = {"source_lang": "eng_Latn", "target_lang": "deu_Latn", "max_length": 64, **sets}
    # Limits as the other runtimes have them, whatever the source.
    values["decode"] = {"stop_early": True, "max_length": 100, "max_length_ratio": 100.0}
    values["train"] = {**TINY["train"], **LEARNS}
    (folder / "adapted.yaml").write_text(yaml.safe_dump(values))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train(load_config(folder / "adapted.yaml"))
    return RunFolder(folder / "runs" / "adapted")


def test_an_adapted_model_begins_both_sides_with_languages_in_all_runtimes(adapted, tmp_path):
    assert adapted.config().data.language_pieces == "both"
    ours = Translator.load(adapted.path, device="cpu", decode=PLAIN)
    results = ours.translate(toy_lines(480)[0][400:], n_best=2)
    sources = [result.source for result in results if "truncated" not in result.flags and is_decided(result)]
    assert len(sources) > 40 and len({result.translation for result in results}) > 30
    assert not any(">>" in result.translation or ">>" in "".join(result.tokens) for result in results)
    probe = tmp_path / "probe.txt"
    probe.write_text("".join(f"{src}\n" for src in sources), encoding="utf-8")
    proof = export(adapted, tmp_path / "ct2", ToCTranslate2(), str(probe))
    assert proof.identical >= len(sources) - 1 and proof.largest_difference < 1e-4
    export(adapted, tmp_path / "hf", ToHuggingFace(), str(probe))
    model, tokenizer = of_transformers(tmp_path / "hf")
    # As the card says, without a language: the export's is written.
    inputs = tokenizer(sources[:9], return_tensors="pt", padding=True)
    written = model.generate(**inputs, num_beams=1, early_stopping=None)
    greedy = Translator.load(adapted.path, device="cpu", decode={**PLAIN, "beam": 1})
    for result, ids in zip(greedy.translate(sources[:9]), written[:, 2:].tolist()):
        end = ids.index(tokenizer.eos_token_id) if tokenizer.eos_token_id in ids else len(ids)
        tokens = tokenizer.convert_ids_to_tokens(ids[:end])
        shorter = len(ids) if end == len(ids) else None  # theirs was cut at its length
        assert differ_by_rounding(greedy, result.source, result.tokens[:shorter], tokens)


def test_scores_and_alignments_are_those_of_the_translation_alone(adapted):
    translator = Translator.load(adapted.path, device="cpu", decode=PLAIN)
    (result,) = translator.translate(["The dog sleeps."], align=True)
    src = translator.encode_src(["The dog sleeps."])[0]
    (log_probs,) = translator.token_log_probs(
        [(src, [translator.tokenizer.tgt.piece_to_id(p) for p in result.tokens])]
    )
    assert len(log_probs) == len(result.tokens) + 1 and sum(log_probs) == pytest.approx(
        result.log_prob, abs=1e-3
    )
    assert len(result.alignment) == len(result.tokens)
    samples = Translator.load(adapted.path, device="cpu", decode={**PLAIN, "search": "sample", "samples": 2})
    assert not any(">>" in r.translation for r in samples.translate(toy_lines(5)[0]))


def test_a_resumed_training_keeps_its_pieces(adapted, monkeypatch):
    config = load_config(adapted.path.parent.parent / "adapted.yaml", ["train.max_updates=401"])
    monkeypatch.chdir(adapted.path.parent.parent)
    train(config)
    assert RunFolder(adapted.path).config().data.language_pieces == "both"


@pytest.fixture
def new_language(tmp_path):
    """The config of a training that gives a model of NLLB a language, and pieces of its own."""
    write_nllb(tmp_path / "nllb")
    strange = str.maketrans("aeiou", "oaeui")
    sides = [[], []]
    for english, german in toy.generate("train", 400):
        sides[0].append(english)
        sides[1].append(german.translate(strange))
    for side, lines in zip(("en", "xx"), sides):
        (tmp_path / f"train.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    pairs = {"source": str(tmp_path / "train.en"), "target": str(tmp_path / "train.xx")}
    values = {
        "name": "child",
        "init_from": {"huggingface": str(tmp_path / "nllb")},
        "data": {
            "source_lang": "eng_Latn", "target_lang": "ltg_Latn", "train": pairs, "max_length": 128,
            "valid": {"from_train": {"share": 0.05}}, "new_languages": {"ltg_Latn": "deu_Latn"},
            "new_pieces": {"text": pairs["target"], "size": 250},
        },
        "train": {**TINY["train"], "max_updates": 2, "validate_every": 2, "save_every": 2, "warmup": 1},
    }  # fmt: skip
    (tmp_path / "child.yaml").write_text(yaml.safe_dump(values))
    return tmp_path


def test_a_new_language_begins_as_one_like_it_and_new_pieces_as_what_they_were(new_language):
    from transformer_mt.run_folder import parent_of
    from transformer_mt.training import open_run

    config = load_config(new_language / "child.yaml")
    parent = parent_of(config)
    run = open_run(config, RunFolder(new_language / "run"))
    old, new = parent.tokenizer(), run.data.tokenizer
    before, rows = parent.weights()["src_embedding.tokens.weight"], run.model.src_embedding.tokens.weight
    assert torch.equal(rows[: len(before)], before)
    assert torch.equal(rows[new.control_ids[">>ltg_Latn<<"]], before[old.control_ids[">>deu_Latn<<"]])
    added = new.all_pieces_src[len(before) + 1 :]
    assert len(added) > 50 and not set(added) & set(old.all_pieces_src)
    for piece in (piece for piece in added if piece.startswith("▁")):
        ids = old.encode_src([piece[1:]])[0]
        torch.testing.assert_close(rows[new.src.piece_to_id(piece)].detach(), before[ids].mean(dim=0))
    lines = (new_language / "train.xx").read_text().splitlines()
    pieces = [sum(map(len, tokenizer.encode_tgt(lines))) for tokenizer in (old, new)]
    assert pieces[1] < 0.8 * pieces[0], "the language has fewer pieces now"
    assert [new.decode_tgt(ids) for ids in new.encode_tgt(lines)] == lines
    run.close()


def test_a_new_language_is_trained_resumed_and_translated(new_language, monkeypatch):
    monkeypatch.chdir(new_language)
    train(load_config("child.yaml"))
    train(load_config("child.yaml", ["train.max_updates=3"]))
    translator = Translator.load("runs/child", "cpu")
    assert translator.target_lang == "ltg_Latn" and len(translator.translate(["The dog sleeps."])) == 1


def test_mistakes_of_new_languages_are_told(new_language):
    unlike = load_config(new_language / "child.yaml", ["data.new_languages.ltg_Latn=xyz_Latn"])
    with pytest.raises(InputError, match="must map to languages of the parent, but xyz_Latn is not one"):
        train(unlike, new_language / "a")
    other = load_config(new_language / "child.yaml", ["data.new_languages={}", "data.target_lang=de"])
    with pytest.raises(InputError, match=r"but de is not; did you mean deu_Latn\?"):
        train(other, new_language / "c")
    with pytest.raises(InputError, match="data.new_languages must be left out without init_from"):
        load_config(new_language / "child.yaml", ["init_from=null", "data.new_pieces.text=null"])
    with pytest.raises(InputError, match="no such file"):
        train(load_config(new_language / "child.yaml", ["data.new_pieces.text=gone.txt"]), new_language / "b")


def test_a_model_of_many_languages_is_served_in_the_directions_that_are_named(tmp_path, cli):
    pytest.importorskip("starlette")
    write_nllb(tmp_path / "m2m", is_m2m=True)
    for words, message in (
        ([], "must serve 1 to 50 of its 9,900 directions, but would serve 9,900; name them with"),
        (["--direction", "en:xx"], "would serve none"),
        (["--direction", "en"], "must be two languages such as en:de, but is en"),
    ):
        result = cli("serve", tmp_path / "m2m", *words)
        assert result.status == 2 and message in result.err


def test_a_language_the_model_does_not_have_is_told(public, tmp_path):
    with pytest.raises(InputError, match=r"must be a language of the model \(.*\), but is xx"):
        import_model(public, tmp_path / "run", "facebook/model", Languages(None, "xx"))
    (public / "tokenizer_config.json").write_text("{}")
    for name in ("tokenizer.json", "special_tokens_map.json"):
        (public / name).unlink(missing_ok=True)
    if public.name == "nllb":
        with pytest.raises(InputError, match="must name its languages in additional_special_tokens"):
            import_model(public, tmp_path / "run", "facebook/model")
    (public / "sentencepiece.bpe.model").unlink()
    with pytest.raises(InputError, match="must hold sentencepiece.bpe.model, but: No such file"):
        import_model(public, tmp_path / "run", "facebook/model")
