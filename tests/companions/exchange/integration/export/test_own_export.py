"""The export in a run's own folder, with which a CPU translates where nobody names an engine."""

import json
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("ctranslate2")

from tests.conftest import ROOT
from transformer_mt.run_folder import RunFolder
from transformer_mt.translator import Translator


@pytest.fixture(scope="module")
def run(tiny_run, tmp_path_factory):
    """A finished run with its export, as `train` leaves it."""
    folder = shutil.copytree(tiny_run, tmp_path_factory.mktemp("own") / "run")
    words = ["train", str(folder / "config.yaml"), "train.export=true", "--out", str(folder)]
    code = f"from transformer_mt.cli import main; raise SystemExit(main({words!r}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, text=True)
    assert result.returncode == 0, result.stderr
    assert f"{folder}/ctranslate2: to translate on CPUs; float32: " in result.stderr
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


def test_translating_with_it_does_not_import_torch(run):
    words = ["translate", str(run), "The dog sleeps."]
    code = (
        f"import sys\nfrom transformer_mt.cli import main\nassert main({words!r}) == 0\n"
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, text=True)
    assert result.stderr.splitlines()[-1] == "False", result.stderr
