"""Models of CTranslate2 that other tools converted, and packages of Argos Translate, as MODEL."""

import json
import zipfile

import pytest

pytest.importorskip("transformers")
pytest.importorskip("ctranslate2")

from tests.helpers.public_models import write_marian
from transformer_mt import Translator
from transformer_mt.corpora import toy
from transformer_mt.errors import InputError
from transformer_mt.run_folder import open_model

LINES = [english for english, _ in toy.generate("test", 30)]


@pytest.fixture
def converted(tmp_path):
    """A Marian model on the hub, and the same as CTranslate2's converter writes it."""
    from ctranslate2.converters import TransformersConverter

    public = tmp_path / "opus-mt-en-de"
    write_marian(public, scale=1.5)
    files = ["source.spm", "target.spm", "tokenizer_config.json"]
    TransformersConverter(str(public), copy_files=files).convert(str(tmp_path / "ct2"))
    return public, tmp_path / "ct2"


def test_a_converted_model_translates_and_scores_as_the_one_on_the_hub(converted, cli, tmp_path):
    public, ct2 = converted
    search = {"max_length": 20, "beam": 2}
    theirs = Translator.load(open_model(ct2).path, device="cpu", decode=search)
    ours = Translator.load(open_model(public).path, device="cpu", decode={**search, "stop_early": True})
    src, tgt = ours.encode_src(LINES), ours.tokenizer.encode_tgt(LINES)
    assert theirs.encode_src(LINES)[0] != [] and theirs.engine.name == "ctranslate2"
    pairs = [(a, b) for a, b in zip(theirs.encode_src(LINES), theirs.tokenizer.encode_tgt(LINES))]
    for mine, other in zip(ours.token_log_probs(list(zip(src, tgt))), theirs.token_log_probs(pairs)):
        assert mine == pytest.approx(other, abs=1e-3)
    cut = Translator.load(open_model(ct2).path, device="cpu", decode={"max_length": 2, "beam": 3}).translate(
        LINES
    )
    assert len(cut) == len(LINES)  # where a line is cut, what is never written is asked for
    result = cli("translate", ct2, LINES[0])
    assert result.status == 0 and len(result.out.splitlines()) == 1
    again = cli("translate", ct2, LINES[0])
    assert again.out == result.out and "importing" in result.err and "importing" not in again.err


def test_a_package_of_argos_translates_as_the_run_it_comes_from(tiny_run, tmp_path, cli):
    pytest.importorskip("argostranslate")
    result = cli("export", tiny_run, tmp_path / "x.argosmodel", "--to", "argos", "--quantization", "float32")
    assert result.status == 0, result.err
    with zipfile.ZipFile(tmp_path / "x.argosmodel") as archive:
        archive.extractall(tmp_path)
    (package,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert (package / "metadata.json").exists() and open_model(package).config().data.directions == [
        ("en", "de")
    ]
    settings = {"decode": {"beam": 5}, "device": "cpu"}
    ours, theirs = (
        Translator.load(tiny_run, **settings),
        Translator.load(open_model(package).path, **settings),
    )
    a, b = ours.translate(LINES), theirs.translate(LINES)
    assert [r.translation for r in a] == [r.translation for r in b]
    assert [r.score for r in a] == pytest.approx([r.score for r in b], abs=1e-3)


def test_languages_that_a_folder_does_not_say_are_named_and_argos_own_codes_known(converted, cli):
    ct2 = converted[1]
    (ct2 / "tokenizer_config.json").unlink()
    nameless = cli("translate", ct2, LINES[0])
    assert nameless.status == 2 and nameless.err == f"{ct2}: names no languages; give them with --from\n"
    assert cli("translate", ct2, LINES[0], "--from", "en", "--to", "de").status == 0
    (ct2 / "metadata.json").write_text('{"from_code": "en", "to_code": "zt"}', encoding="utf-8")
    assert open_model(ct2).config().data.target_lang == "zh_Hant"


def test_folders_that_cannot_be_used_are_told(converted):
    ct2 = converted[1]

    def refused(folder):
        with pytest.raises(InputError) as error:
            open_model(folder)
        return str(error.value).removeprefix(f"{folder}: ")

    (ct2 / "source.spm").unlink()
    assert refused(ct2) == "must hold source.spm and target.spm, or sentencepiece.model, but holds neither"
    (ct2 / "bpe.model").write_text("x")
    assert "but holds bpe.model, of Moses and subword-nmt" in refused(ct2)
    (ct2 / "shared_vocabulary.json").unlink()
    assert refused(ct2).startswith("must hold source_vocabulary.json, but does not")
    (ct2 / "shared_vocabulary.json").write_text(json.dumps(["<s>", "eng_Latn"]))
    assert "must not need language tokens, but is M2M-100 or NLLB" in refused(ct2)


def test_a_converted_model_is_no_parent(converted, write_config, cli):
    config = write_config(init_from=str(converted[1]))
    result = cli("train", config, "tokenizer={}", "model={}")
    assert result.status == 2 and "must be a run's folder, but is an export" in result.err
