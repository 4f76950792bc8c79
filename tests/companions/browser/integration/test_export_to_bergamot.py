"""`export --to bergamot`: Firefox's engine translates as the run does, and what it reads can be imported."""

import hashlib
import json
import re
import shutil
import struct

import numpy as np
import pytest
import torch
import yaml
from sentencepiece import SentencePieceProcessor

from tests.conftest import TINY
from tests.helpers.browser import Static, browser, needs_chromium, watched_page
from tests.helpers.command import run_command
from tests.helpers.node import node_modules
from tests.helpers.shortlist import unpacked
from transformer_mt.companions.browser.shortlist import packed
from transformer_mt.companions.browser.to_bergamot import ToBergamot, largest_inputs, reasons_against
from transformer_mt.companions.browser.to_browser import ToBergamotPage
from transformer_mt.companions.exchange.export.format import TrainedRun
from transformer_mt.companions.exchange.marian_layout import is_quantized, quantized, read_bin, write_bin
from transformer_mt.config.load import load_config
from transformer_mt.corpora import toy
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.engines.torch_engine import load_model

__all__ = ["browser", "node_modules"]
MODELS = {
    "ssru": {"autoregression": "ssru"},
    "attention": {"feed_forward": "silu", "output_bias": True},
    "separate": {"autoregression": "ssru", "num_decoder_layers": 2},
}
SOURCES = [source for source, _ in toy.generate("valid", 40)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each kind of model that the engine can hold."""
    folder = tmp_path_factory.mktemp("marian")

    def run(name):
        out = folder / "runs" / name
        if not out.exists():
            fits = {"d_model": 64, "norm": "post", "position": "sinusoidal_marian", "decoder_start": "zeros"}
            config = {**TINY, "name": name, "model": {**TINY["model"], **fits, **MODELS[name]}}
            # Long enough that its translations end.
            config["train"] = {**TINY["train"], "max_updates": 120, "validate_every": 120, "save_every": 120}
            config["tokenizer"] = {**TINY["tokenizer"], "shared": name != "separate"}
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
            done = run_command("train", folder / f"{name}.yaml", cwd=folder)
            assert done.status == 0, done.err
        return out

    return run


@pytest.fixture(scope="module")
def exported(runs, node_modules, tmp_path_factory):
    def export(name):
        out = tmp_path_factory.mktemp("bergamot") / name
        words = ("--to", "bergamot", "--quantization", "float32", "--runtime", node_modules)
        done = run_command("export", runs(name), out, *words)
        assert done.status == 0, done.err
        return out, done

    return export


def test_the_engine_translates_as_the_run_does_and_so_does_what_is_imported(
    runs, exported, node_modules, tmp_path, cli
):
    for name in MODELS:
        out, done = exported(name)
        same, compared = re.search(r"float32: (\d+) of (\d+) probe sentences translated", done.out).groups()
        assert int(same) == int(compared) > 30 and "scores" not in done.out
        assert "the export has decode.beam 1 (here 5)" in done.err
        again, back = tmp_path / f"{name}_again", tmp_path / f"{name}_back"
        imported = cli("import", out, again)
        assert imported.status == 0 and imported.out.startswith(f"{again}: en to de")
        old, new = RunFolder(runs(name)).weights(), RunFolder(again).weights()
        layers = [key for key in old if ".layers." in key]
        assert layers and all(torch.equal(old[key].float(), new[key]) for key in layers)
        words = ("--to", "bergamot", "--quantization", "float32", "--runtime", node_modules)
        (tmp_path / "probe").write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
        assert cli("export", again, back, *words, "--probe", tmp_path / "probe").status == 0
        files = json.loads((out / "metadata.json").read_text())["files"]
        for file in (files["model"], *files["vocabularies"]):
            assert (back / file).read_bytes() == (out / file).read_bytes()


def test_an_imported_model_learns_and_goes_back(exported, node_modules, tmp_path, monkeypatch, cli):
    """As a model of Firefox would be adapted to the words of a team."""
    monkeypatch.chdir(tmp_path)
    assert cli("import", exported("ssru")[0], "firefox").status == 0
    train = {**TINY["train"], "max_updates": 4, "validate_every": 4, "save_every": 4, "warmup": 1}
    config = {"data": TINY["data"], "init_from": "firefox", "train": train}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    done = run_command("train", "mine.yaml", cwd=tmp_path)
    assert done.status == 0 and "Traceback" not in done.err, done.err
    words = ("--to", "bergamot", "--quantization", "float32", "--runtime", node_modules)
    back = run_command("export", "runs/mine", "back", *words, cwd=tmp_path)
    assert back.status == 0 and "probe sentences translated identically" in back.out, back.err


def test_the_files_are_those_that_firefox_and_translatelocally_look_for(exported):
    out, _ = exported("ssru")
    entry = json.loads((out / "registry.json").read_text())["ende"]
    assert entry.keys() == {"model", "vocab"}
    for file in entry.values():
        content = (out / file["name"]).read_bytes()
        assert file["size"] == len(content) > file["estimatedCompressedSize"] > 0
        assert file["expectedSha256Hash"] == hashlib.sha256(content).hexdigest()
    info = json.loads((out / "model_info.json").read_text())
    assert (info["shortName"], info["src"], info["srcTags"]) == ("en-de-ssru", "English", {"en": "English"})
    config = yaml.safe_load((out / "config.intgemm8bitalpha.yml").read_text())
    assert all((out / name).exists() for name in (*config["models"], *config["vocabs"]))


def test_int8_keeps_each_weight_within_half_a_step_and_the_engine_takes_it(runs, node_modules, tmp_path):
    target = ToBergamot("int8", node_modules)
    written(runs("ssru"), target, tmp_path)
    written(runs("ssru"), ToBergamot("float32", node_modules), tmp_path / "exact")
    exact, _ = read_bin(tmp_path / "exact/model.ende.float32.bin")
    arrays, _ = read_bin(tmp_path / "model.ende.intgemm.alphas.bin")
    matrices = [name for name in exact if is_quantized(name)]
    assert {"Wemb", "decoder_l1_rnn_W", "decoder_l1_rnn_Wf", "encoder_l1_ffn_W1"} <= set(matrices)
    for name in matrices:
        step = np.abs(exact[name]).max() / 127
        assert np.abs(arrays[name] - exact[name]).max() <= step * 0.501
        again = quantized(arrays[name], name)[
            :-4
        ]  # an imported model loses nothing when it is exported again
        assert again == quantized(exact[name], name)[:-4]
        assert arrays[f"{name}_QuantMultA"].shape == (1,) and arrays[f"{name}_QuantMultA"][0] > 0
    translations = target.translated(tmp_path, SOURCES)
    assert len(translations) == len(SOURCES) and all(translations)


def test_the_largest_inputs_are_those_of_each_call():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    with largest_inputs(model) as largest:
        model(torch.tensor([[1.0, -3.0]]))
        model(torch.tensor([[0.5, 0.25]]))
    model(torch.tensor([[9.0, 9.0]]))
    assert largest == {"0": [3.0, 0.5]}


def written(run, target, folder):
    """What the target writes for a run, without the proof."""
    run = RunFolder(run)
    config = run.config()
    decode = target.supported_settings(config.decode)[0]
    config = config.model_copy(update={"decode": decode})
    trained = TrainedRun(run, config, *load_model(run, config), sentences=SOURCES)
    trained.model.eval()
    folder.mkdir(exist_ok=True)
    target.write(trained, folder)
    (folder / "metadata.json").write_text(json.dumps(target.metadata(config)))


@pytest.mark.parametrize("name", ["ssru", "separate"])
def test_with_a_shortlist_only_its_tokens_are_written(name, runs, node_modules, tmp_path, capfd):
    target, out = ToBergamot("int8", node_modules, has_shortlist=True), tmp_path / "out"
    written(runs(name), target, out)
    assert re.search(r"shortlist: learning a lexicon from 1,4\d\d training pairs", capfd.readouterr().err)
    files = target.metadata(None)["files"]
    lex = out / files["shortlist"]
    assert yaml.safe_load((out / files["config"]).read_text())["shortlist"] == [lex.name, False]
    lists = unpacked(lex.read_bytes())
    src, tgt = (SentencePieceProcessor(model_file=str(out / file)) for file in files["vocabularies"])
    assert len(lists) == src.vocab_size() and all(0 in tokens for tokens in lists)  # 0 ends a translation
    assert all((np.diff(tokens.astype(int)) > 0).all() for tokens in lists)
    assert all(tokens.max() < tgt.vocab_size() for tokens in lists)
    assert all(target.translated(out, SOURCES))
    target.pack(out, tmp_path / "packed", RunFolder(runs(name)).config())
    registry = json.loads((tmp_path / "packed/registry.json").read_text())
    assert registry["ende"]["lex"]["name"] == lex.name
    (tmp_path / "packed" / lex.name).write_bytes(packed([[0]] * len(lists)))
    # With one vocabulary, the engine adds the tokens of the source.
    text = {*"".join(target.translated(tmp_path / "packed", SOURCES))}
    assert {letter for letter in text if letter.isalpha()} <= {*(" ".join(SOURCES) if name == "ssru" else "")}


def test_a_page_reads_its_shortlist(runs, node_modules, tmp_path):
    target, page = ToBergamotPage("int8", node_modules, has_shortlist=True), tmp_path / "page"
    written(runs("separate"), target, tmp_path / "new")
    before = target.translated(tmp_path / "new", SOURCES)
    target.pack(tmp_path / "new", page, RunFolder(runs("separate")).config())
    page_data = json.loads((page / "model.json").read_text())
    lex = page_data["engine"]["shortlist"]
    assert lex in page_data["files"] and f'"{lex}"' in (page / "offline.js").read_text().replace("\\", "")
    size = len(unpacked((page / lex).read_bytes()))
    assert all(before)
    (page / lex).write_bytes(packed([[0]] * size))
    assert not any(map(str.isalpha, "".join(target.translated(page, SOURCES))))


def test_a_shortlist_that_cannot_be_is_refused(runs, exported, tiny_run, node_modules, tmp_path, cli):
    def refused(run, *words):
        runtime = ("--runtime", node_modules)
        done = cli("export", run, tmp_path / "x", "--shortlist", *words, *runtime)
        assert done.status == 2 and not (tmp_path / "x").exists()
        return done.err

    err = refused(runs("ssru"), "--to", "bergamot", "--quantization", "float32")
    assert "--shortlist must be left out with --quantization float32, whose proof needs identical" in err
    err = refused(tiny_run, "--to", "browser")
    assert "--shortlist must be left out" in err and "a page with onnxruntime has no shortlist" in err
    cli("import", exported("ssru")[0], tmp_path / "imported")
    err = refused(tmp_path / "imported", "--to", "bergamot")
    assert "a shortlist is learnt from training pairs, but an imported model has none; leave out --sh" in err
    assert "--shortlist must be left out with --to ctranslate2" in refused(tiny_run)
    moved = tmp_path / "moved"
    shutil.copytree(runs("ssru"), moved)
    config = moved / "config.yaml"
    entry = yaml.safe_load(config.read_text())
    entry["data"]["train"] = {"source": "gone.en", "target": "gone.de"}
    config.write_text(yaml.safe_dump(entry))
    err = refused(moved, "--to", "bergamot")
    assert "learnt from the training pairs; without them, leave out --shortlist: gone.en: no such file" in err


@needs_chromium
def test_the_page_of_a_model_that_fits_has_this_engine_and_translates_without_a_network(
    runs, node_modules, browser, tmp_path, cli
):
    """White space, capitals and numbers are as `translate` has them, though the engine knows no such rule."""
    run, out = runs("ssru"), tmp_path / "page"
    words = ("--to", "browser", "--quantization", "float32", "--runtime", node_modules)
    done = cli("export", run, out, *words)
    assert done.status == 0 and "probe sentences translated identically" in done.out, done.err
    runtime = sorted(file.name for file in (out / "runtime").iterdir())
    assert runtime == ["bergamot.js", "bergamot.wasm", "int8_products.wasm"]
    assert "Mozilla Public License 2.0" in (out / "LICENSES.txt").read_text()
    text = "THE DOG SLEEPS. A cat sings.\n\n  - The cat sings. 12\n"
    expected = run_command("translate", run, "--beam", "1", stdin=text.encode()).out
    server = Static(out)
    page = watched_page(browser)
    page.goto(server.url)
    page.fill("#source", "The dog sleeps.")
    page.wait_for_function("document.getElementById('target').value")
    page.wait_for_function("caches.keys().then((names) => names.length > 0)")
    page.wait_for_function(
        "navigator.serviceWorker.ready.then((ready) => ready.active?.state === 'activated')"
    )
    server.stop()
    page.reload()
    page.fill("#source", text)
    page.wait_for_function("document.getElementById('target').value.includes('\\n')")
    assert page.input_value("#target") == expected
    assert page.problems == [] and all(url.startswith((server.url, "data:", "blob:")) for url in page.asked)


def test_what_does_not_fit_is_refused_with_every_reason(runs, tiny_run, node_modules, tmp_path, cli):
    out = tmp_path / "x"
    status, _, err = cli("export", tiny_run, out, "--to", "bergamot", "--runtime", node_modules)
    assert status == 2 and not out.exists()
    for reason in (
        "model.position must be sinusoidal_marian, but is sinusoidal",
        "model.norm must be post, but is pre",
        "model.decoder_start must be zeros, but is bos",
        "model.d_model must be a multiple of 64, but is 32",
    ):
        assert f"Bergamot cannot hold this model: {reason}" in err
    assert "A config that `transformer-mt new` writes for bergamot fits" in err
    err = cli("export", runs("ssru"), out, "--to", "bergamot", "--runtime", tmp_path).err
    assert f"{tmp_path}: must hold @browsermt/bergamot-translator 0.4.9, but it is missing" in err


def test_tags_are_no_part_of_the_engine(runs, write_config):
    """So a page of such a model has onnxruntime, which writes the tag before the source."""
    data = {"train": [{"toy": "train", "size": 20, "tag": "formal"}, {"toy": "train", "size": 20}]}
    config = load_config(write_config(data={**TINY["data"], **data}))
    assert "data.train must have no tags, but has formal" in reasons_against(config)


def test_languages_with_long_codes_are_read_from_the_folder(exported, tmp_path, cli):
    out = shutil.copytree(exported("ssru")[0], tmp_path / "out")
    info = json.loads((out / "model_info.json").read_text())
    info |= {"srcTags": {"eng": "English"}, "trgTag": "zh_Hans"}
    (out / "model_info.json").write_text(json.dumps(info), encoding="utf-8")
    assert cli("import", out, tmp_path / "run").out.startswith(f"{tmp_path}/run: en to zh_Hans")


def test_damaged_files_are_told(tmp_path, cli):
    file = tmp_path / "model.bin"
    good = {"Wemb": np.ones((2, 2), np.float32)}

    def refused(data):
        file.write_bytes(data)
        status, _, err = cli("import", file, tmp_path / "run", "--from", "en", "--to", "de")
        assert status == 2 and "Traceback" not in err
        return err

    write_bin(file, good, "type: transformer\n", int8=False)
    whole = file.read_bytes()
    assert "must be a binary model of Marian, but is cut" in refused(whole[:-300])
    assert "is cut" in refused(whole[:20])
    assert f"begins with version 1 and {2**60} tensors" in refused(struct.pack("<QQ", 1, 2**60) + whole[16:])
    assert "is cut" in refused(whole[:40] + struct.pack("<Q", 2**50) + whole[48:])  # length of a tensor
    assert "transformer-ffn-activation must be relu or swish, but is None" in refused(whole)
    shape = whole.index(struct.pack("<2i", 2, 2))
    for wrong in ((2, -2), (2_000_000_000, 2)):
        changed = whole[:shape] + struct.pack("<2i", *wrong) + whole[shape + 8 :]
        assert f"Wemb has the shape {wrong}" in refused(changed)
    kind = whole.index(struct.pack("<Q", 0x0404))
    assert "Wemb is of the kind 0x805" in refused(whole[:kind] + struct.pack("<Q", 0x805) + whole[kind + 8 :])
