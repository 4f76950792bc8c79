"""`transformer-mt export --to onnx`: files that are useful alone."""

import json
import re
import subprocess
import sys

import pytest

from tests.helpers.command import run_command
from transformer_mt.companions.browser import to_onnx
from transformer_mt.companions.browser.to_onnx import ENCODER, STEP
from transformer_mt.companions.exchange.export import proof
from transformer_mt.companions.exchange.export.format import TrainedRun
from transformer_mt.errors import InputError, WorkError
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.engines.torch_engine import load_model


@pytest.fixture(scope="module")
def exported(tiny_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("onnx") / "whole"
    done = run_command("export", tiny_run, out, "--to", "onnx", "--quantization", "float32")
    assert done.status == 0, done.err
    return out, done.out


def test_the_export_is_proven_and_its_files_are_few(exported):
    out, said = exported
    identical, all_lines = map(int, re.search(r"float32: (\d+) of (\d+) probe sentences", said).groups())
    assert identical == all_lines > 10
    names = {path.name for path in out.iterdir()}
    assert names >= {ENCODER, STEP, "tokenizer.model", "model.json", "README.md"}
    facts = json.loads((out / "model.json").read_text(encoding="utf-8"))
    assert facts["directions"][0] | {"title": "", "rules": {}} == {
        "from": "en", "to": "de", "title": "", "before": [], "prompt": [],
        "source_has_spaces": True, "target_has_spaces": True, "rules": {},
    }  # fmt: skip


def test_int8_is_smaller_and_judged_by_references(exported, tiny_run, tmp_path, cli, monkeypatch):
    small = tmp_path / "small"
    status, said, err = cli("export", tiny_run, small, "--to", "onnx")
    assert status == 0 and said.startswith("int8: "), err
    assert re.search(r"BLEU of \d+ validation sentences: \d+\.\d\d in int8, \d+\.\d\d by the run", err)
    sizes = [
        sum((folder / name).stat().st_size for name in (ENCODER, STEP)) for folder in (small, exported[0])
    ]
    assert sizes[0] < 0.75 * sizes[1]
    run, target = RunFolder(tiny_run), to_onnx.ToOnnx()
    target._run = TrainedRun(run, run.config(), *load_model(run, run.config()))
    monkeypatch.setattr(proof, "_BELOW", -200.0)
    with pytest.raises(WorkError, match=r"int8 must cost at most -200.0 BLEU, but: BLEU of .*was not kept"):
        target.pack(small, tmp_path / "b", run.config())
    assert not (tmp_path / "b").exists()


def test_the_example_of_the_card_translates(exported, tiny_run, cli):
    out, _ = exported
    (code,) = re.findall(r"```python\n(.*?)```", (out / "README.md").read_text(encoding="utf-8"), re.S)
    assert f'pathlib.Path("{out.name}")' in code
    code = code.replace('encode("...")', 'encode("The dog sleeps.")')
    done = subprocess.run([sys.executable, "-c", code], cwd=out.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    greedy = cli("translate", tiny_run, "The dog sleeps.", "--beam", "1", "--engine", "torch")[1]
    assert done.stdout == greedy


@pytest.mark.parametrize("module", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_library_is_named(tiny_run, tmp_path, cli, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    status, _, err = cli("export", tiny_run, tmp_path / "x", "--to", "onnx")
    assert status == 2 and err == (
        f"{module} must be installed for ONNX files, but is not; install the extra: "
        "pip install 'transformer-mt[browser]'\n"
    )


def test_an_imported_vocabulary_is_refused(tiny_run, tmp_path):

    run = RunFolder(tiny_run)
    model, tokenizer = load_model(run, run.config())
    tokenizer.numberings = [object()]
    with pytest.raises(InputError, match="must have a vocabulary of its own, but has an imported one"):
        to_onnx.ToOnnx().write(TrainedRun(run, run.config(), model, tokenizer), tmp_path)


def test_what_cannot_be_held_is_named(untrained_run, tmp_path, cli):
    run = untrained_run(kind="recurrent")
    status, _, err = cli("export", run, tmp_path / "x", "--to", "onnx")
    assert (
        status == 2 and "ONNX cannot hold this model: model.kind must be transformer, but is recurrent" in err
    )
    status, _, err = cli("export", run, tmp_path / "x", "--to", "onnx", "--quantization", "int16")
    assert status == 2 and "--quantization must be int8 or float32, but is int16" in err
