"""The course in the documentation: its code is the trainer's, its numbers are right, its programs run."""

import contextlib
import io
import json
import re

import pytest

from tests.conftest import ROOT
from tests.helpers.companions import needs
from transformer_mt.config.load import load_config
from transformer_mt.model.build_model import build_model

EXPLANATION = ROOT / "docs/explanation"
COURSE = (EXPLANATION / "course.md").read_text(encoding="utf-8")


def test_the_code_beside_the_equations_is_the_trainers():
    sections = re.split(r"^## ", COURSE, flags=re.M)
    quoted = 0
    for section in sections:
        for program in re.findall(r"```python\n(.*?)```", section, re.S):
            (file,) = re.findall(r"In `([a-z_/]+\.py)`", " ".join(section.split()))
            text = (ROOT / "transformer_mt" / file).read_text(encoding="utf-8")
            code = [" ".join(line.split()) for line in text.splitlines()]
            for line in (line for line in program.splitlines() if line and line[0] != "#"):
                assert " ".join(line.split()) in code, line
                quoted += 1
    assert quoted > 15


def test_the_sentence_on_the_page_has_the_shapes_of_the_demo():
    config = load_config("demo").model
    model = build_model(config, 1000, 1000, True, 64)
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in COURSE.splitlines() if "|" in row]
    S, T, V, D, F, H = 9, 8, 1000, config.d_model, config.d_ff, config.num_heads
    counted = 0
    for name, _, shape, count in (row for row in rows if len(row) == 4 and "." in row[0]):
        reads_source = name.startswith("encoder") or re.search(r"cross_attention\.(key|value)", name)
        length = S if reads_source else T
        keys = S if "cross" in name or name.startswith("encoder") else T
        width = F if name.endswith("inner") else D
        expected = [H, length, keys] if name.endswith("weights") else [length, width]
        assert shape == " x ".join(map(str, expected)), name
        if count:
            module = model.get_submodule(name)
            assert count == f"{sum(weight.numel() for weight in module.parameters()):,}", name
            counted += 1
    assert counted > 15 and f"| {T} x {V} |" in COURSE
    assert f"parameters: {sum(weight.numel() for weight in model.parameters()):,} " in COURSE


@pytest.fixture
def demo(tiny_run, tmp_path, monkeypatch):
    """A folder with runs/demo."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/demo").symlink_to(tiny_run)
    monkeypatch.chdir(tmp_path)


@needs("lab")
def test_the_solutions_of_the_exercises_run(demo):
    page = (EXPLANATION / "exercises.md").read_text(encoding="utf-8")
    programs, names = re.findall(r"```python\n(.*?)```", page, re.S), {}
    assert len(programs) == 13 and len(re.findall(r"^## \d+\. ", page, re.M)) == 12
    with contextlib.redirect_stdout(io.StringIO()):
        for program in programs:
            exec(compile(program, "exercises.md", "exec"), names)


def test_the_transformer_from_nothing_is_the_trainers():
    notebook = json.loads((ROOT / "docs/notebooks/from_nothing.ipynb").read_text(encoding="utf-8"))
    names = {}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), "from_nothing", "exec"), names)
    assert out.getvalue().endswith(4 * "True\n")  # encoder layer, decoder layer, positions, learning rates
    assert len(notebook["cells"]) == 20
