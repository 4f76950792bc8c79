"""Exported folders through the real command line: a MODEL like any other."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.helpers.command import run_command
from transformer_mt.companions.exchange.export.export import export
from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2
from transformer_mt.errors import WorkError
from transformer_mt.run_folder import RunFolder
from transformer_mt.translator import Translator

pytest.importorskip("ctranslate2")

LINES = "The dog sleeps.\n\nA cat sings.\nThe old teacher sees a small bird.\n"


@pytest.fixture(scope="module")
def exported(tiny_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "ct2"
    result = run_command("export", tiny_run, folder)
    assert result.status == 0, result.err
    proof = r"float32: (\d+) of 40 probe sentences translated identically(?: \((\d+) others differently)?"
    assert (found := re.search(proof, result.out)) and sum(int(n or 0) for n in found.groups()) == 40
    return folder


def test_an_export_translates_as_its_run_does(tiny_run, exported, tmp_path, cli):
    source = tmp_path / "in.txt"
    source.write_text(LINES, encoding="utf-8")
    outputs = [cli("translate", model, "-i", source) for model in (tiny_run, exported)]
    assert outputs[0] == outputs[1] and outputs[0][1].count("\n") == 4
    rows = []
    for model in (tiny_run, exported):
        out = cli("translate", model, "-i", source, "--json", "--align", "--n-best", "2")[1]
        rows.append([json.loads(line) for line in out.strip().split("\n")])
    for a, b in zip(*rows):
        assert (
            a["translation"] == b["translation"] and a["tokens"] == b["tokens"] and a["flags"] == b["flags"]
        )
        assert a["score"] == pytest.approx(b["score"], abs=1e-3)
        assert a["log_prob"] == pytest.approx(b["log_prob"], abs=1e-2)


def test_an_export_is_evaluated_and_scored(tiny_run, exported, tmp_path, cli):
    scores = [cli("evaluate", model)[1] for model in (tiny_run, exported)]
    first, second = (score.partition("\n") for score in scores)
    assert first[0] == "test-0: toy test, 30 sentences, beam 5, by torch in float32"
    assert second[0] == "test-0: toy test, 30 sentences, beam 5, by ctranslate2 as exported"
    assert first[2] == second[2]
    (tmp_path / "a.en").write_text("The dog sleeps.\nA cat sings.\n", encoding="utf-8")
    (tmp_path / "a.de").write_text("Der Hund schläft.\nEine Katze singt.\n", encoding="utf-8")
    files = ["--source", tmp_path / "a.en", "--target", tmp_path / "a.de"]
    values = []
    for model in (tiny_run, exported):
        status, out, err = cli("score", model, *files)
        assert status == 0 and "2 lines" in err and "perplexity" in err
        values.append([float(line.split("\t")[0]) for line in out.strip().split("\n")])
    assert values[0] == pytest.approx(values[1], abs=1e-2)


def test_exports_need_no_torch(exported, run):
    code = f"""import sys
from transformer_mt.cli import main

for words, unwanted in (
    (["translate", {str(run)!r}, "The dog sleeps."], ["torch"]),
    (
        ["translate", {str(exported)!r}, "The dog sleeps."],
        ["torch", "datasets", "sacrebleu", "matplotlib", "pandas"],
    ),
    (["evaluate", {str(exported)!r}], ["torch", "matplotlib"]),
):
    assert main(words) == 0
    assert not (found := [module for module in unwanted if module in sys.modules]), found"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, text=True)
    assert result.returncode == 0, result.stderr


def test_the_probe_without_the_validation_set_is_what_the_run_was_scored_on(tiny_run, tmp_path, said):
    from transformer_mt.companions.exchange.export.proof import probe_sentences
    from transformer_mt.config.load import load_config

    (tmp_path / "evaluation").mkdir()
    rows = "".join(f'{{"source": "{source}"}}\n' for source in ("", *[" "] * 300, "The dog."))
    (tmp_path / "evaluation" / "test-0.jsonl").write_text(rows, encoding="utf-8")
    config = load_config(tiny_run / "config.yaml", ["data.valid={file: gone.tsv}"])
    tokenizer = RunFolder(tiny_run).tokenizer()
    assert probe_sentences(RunFolder(tmp_path), config.data, tokenizer, None) == ["The dog."]
    assert "the probe is made of the sources in" in said[0]


@pytest.mark.parametrize(
    "words, message",
    [
        ("translate EXPORT x --engine torch", "is an export, which torch cannot search; leave out --engine"),
        ("translate EXPORT x --ensemble RUN", "is an export; an ensemble is searched in the folders of runs"),
        ("translate EXPORT x --search sample", "--search must be 'beam' with --engine ctranslate2"),
        ("translate EXPORT x --dtype bfloat16", "--dtype must be one of"),
        ("translate EXPORT x --device cpu:5", "--device must be auto, cpu, cuda or cuda:N"),
        ("translate EXPORT x --device cuda:7", "there is no cuda:7"),
        ("translate RUN x --dtype int8", "--dtype must be float32, bfloat16 or float16 with --engine torch"),
        ("translate RUN x --engine ctranslate2", "export it with: transformer-mt export"),
        ("translate RUN x --engine ctranslate2 --stop-early false", "--stop-early must be true with"),
        ("translate RUN x --engine ctranslate2 --ensemble RUN", "--ensemble requires --engine torch"),
        ("translate RUN x --engine ctranslate2 --device mps", "--device must be auto, cpu, cuda or"),
        ("translate RUN x --engine ctranslate2 --banned dog", "--banned must be [] with --engine"),
        ("translate RUN x --engine ctranslate2 --beam 2 --n-best 3", "--n-best must be at most --beam (2)"),
        ("export RUN EXPORT", "must be a new folder, but a folder is there; remove it or name another"),
        ("export EXPORT new", "must be a run's folder, but is an export"),
        ("export no/run new", "no/run: no such folder"),
        ("export RUN new --probe no/file", "no/file: no such file"),
        ("export RUN new --to huggingface --quantization int8", "--quantization must be float32 with"),
    ],
)
def test_mistakes_get_one_line(tiny_run, exported, tmp_path, cli, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    names = {"RUN": tiny_run, "EXPORT": exported}
    status, out, err = cli(*(names.get(word, word) for word in words.split()))
    if "bfloat16" in words and status == 0:
        pytest.skip("this processor computes in bfloat16")
    assert status == 2 and out == "" and message in err.strip().split("\n")[-1]
    assert not (tmp_path / "new").exists()


def test_a_refused_export_leaves_nothing_behind(tiny_run, tmp_path):
    class Strict(ToCTranslate2):
        least_bleu = 101.0

    weak = r"it was not kept.*; the model is weak, with a validation BLEU of [\d.]+ after 24 of 24 updates"
    with pytest.raises(WorkError, match=weak):
        export(RunFolder(tiny_run), tmp_path / "a" / "b" / "e", Strict("int8"), None)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_names_its_extra(tiny_run, tmp_path, cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    status, _, err = cli("export", tiny_run, tmp_path / "e")
    assert status == 2 and "pip install 'transformer-mt[ctranslate2]'" in err
    assert not (tmp_path / "e").exists()


def test_a_damaged_export_is_told(exported, tmp_path, cli):
    for path in filter(Path.is_file, exported.iterdir()):
        (tmp_path / path.name).write_bytes(path.read_bytes()[: 2000 if path.name == "model.bin" else None])
    status, _, err = cli("translate", tmp_path, "x")
    assert status == 1 and "CTranslate2 cannot load it" in err
    (tmp_path / "export.json").unlink()
    status, _, err = cli("translate", tmp_path, "x")
    assert status == 2 and "must hold a whole export.json" in err


# The export in a run's own folder, with which a CPU translates where nobody names an engine.


@pytest.fixture(scope="module")
def run(tiny_run, tmp_path_factory):
    """A finished run with its export, as `train` leaves it."""
    folder = shutil.copytree(tiny_run, tmp_path_factory.mktemp("own") / "run")
    result = run_command("train", folder / "config.yaml", "train.export=true", "--out", folder)
    assert result.status == 0, result.err
    assert f"{folder}/ctranslate2: to translate on CPUs; float32: " in result.err
    return folder


def engine_of(run, **options):
    return Translator.load(run, **options).engine.name


def test_a_cpu_searches_with_it_and_translates_as_torch_does(run, tmp_path, cli):
    sentences = ["The dog sleeps.", "", "A cat sings. The king dances."]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in sentences), encoding="utf-8")
    outputs = [
        cli("translate", run, "-i", tmp_path / "in", *more).out for more in ([], ["--engine", "torch"])
    ]
    assert outputs[0] == outputs[1]
    assert engine_of(run) == "ctranslate2" and engine_of(run, engine="torch") == "torch"


def test_it_is_used_only_where_it_translates_alike(run, tiny_run, tmp_path):
    assert engine_of(tiny_run) == "torch"  # without an export
    assert engine_of(run, decode={"beam": 1, "stop_early": False}) == "ctranslate2"
    for decode in (
        {"stop_early": False}, {"search": "sample"}, {"no_repeat_ngram": 3}, {"min_length": 3},
        {"max_length": 9}, {"banned": ["dog"]},
    ):  # fmt: skip
        assert engine_of(run, decode=decode) == "torch", decode
    (tmp_path / "terms.tsv").write_text("dog\tHund\n", encoding="utf-8")
    assert engine_of(run, glossary=tmp_path / "terms.tsv") == "torch"
    assert engine_of(run, ensemble=[tiny_run]) == "torch"
    assert engine_of(run, dtype="float32") == "ctranslate2"


def test_a_greedy_search_takes_a_run_that_would_not_stop_early(run, tmp_path, cli):
    """The run's config.yaml has every key of `decode`, `stop_early: false` among them."""
    copy = shutil.copytree(run, tmp_path / "run")
    config = (copy / "config.yaml").read_text(encoding="utf-8")
    (copy / "config.yaml").write_text(
        config.replace("stop_early: true", "stop_early: false"), encoding="utf-8"
    )
    assert cli("translate", copy, "The dog sleeps.", "--beam", "1").status == 0


def test_an_export_of_other_weights_is_never_used_and_is_made_again(run, tmp_path, cli):
    changed = shutil.copytree(run, tmp_path / "run")
    with (changed / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))
    assert RunFolder(run).own_export is not None and RunFolder(changed).own_export is None
    assert engine_of(changed) == "torch"
    result = cli("train", changed / "config.yaml", "train.export=true", "--out", changed)
    assert result.status == 0 and "to translate on CPUs" in result.err
    facts = json.loads((changed / "ctranslate2" / "export.json").read_text(encoding="utf-8"))
    assert facts["weights"] == RunFolder(changed).weights_digest()
    assert engine_of(changed) == "ctranslate2"


def test_what_cannot_be_exported_says_so_in_one_line(write_config, tmp_path, cli):
    config = write_config(model={"position": "alibi"}, train={"max_updates": 2, "export": True})
    result = cli("train", config, "--out", tmp_path / "run")
    assert result.status == 0
    lines = [line for line in result.err.splitlines() if "will translate with torch alone" in line]
    assert len(lines) == 1 and not (tmp_path / "run" / "ctranslate2").exists()
    assert engine_of(tmp_path / "run") == "torch"


def test_attention_is_looked_at_with_torch(run, cli):
    result = cli("plot", "attention", run, "The dog sleeps.", "--json")
    assert result.status == 0 and json.loads(result.out)["rows"]
