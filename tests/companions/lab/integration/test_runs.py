"""`transformer-mt runs`: what a table of all runs says of each."""

import json
import shutil

import pytest

from transformer_mt.files import lock_folder


@pytest.fixture
def runs(tiny_run, tmp_path):
    """Three runs: a finished one, one that trains, and one that has stopped, with other settings."""
    for name in ("a", "b", "sweep/c"):
        shutil.copytree(tiny_run, tmp_path / "runs" / name, symlinks=True)
    for name, score in (("b", 99.0), ("sweep/c", 50.0)):
        folder = tmp_path / "runs" / name
        (folder / "finished.json").unlink()
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        entries = [json.loads(line) for line in lines]
        kept = [entry for entry in entries if entry["event"] != "end"]
        for entry in kept:
            for one in entry.get("scores", []):
                one["value"] = score
        (folder / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in kept), "utf-8")
    config = tmp_path / "runs/sweep/c/config.yaml"
    config.write_text(config.read_text("utf-8").replace("warmup: 5", "warmup: 7"), encoding="utf-8")
    return tmp_path / "runs"


def test_all_runs_are_listed_with_state_score_and_what_differs(runs, cli):
    with lock_folder(runs / "b"):
        status, out, _ = cli("runs", runs)
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines()[2:]]
    assert status == 0 and [row[0] for row in rows] == [str(runs / name) for name in ("b", "sweep/c", "a")]
    assert [row[1] for row in rows] == ["trains", "stopped", "finished"]
    assert rows[0][3] == "BLEU 99.00" and rows[0][5] != "" and rows[1][5] == ""
    assert [row[7] for row in rows] == ["", "train.warmup=7", ""]
    objects = [json.loads(line) for line in cli("runs", runs, "--json", "--sort", "name").out.splitlines()]
    assert [one["folder"] for one in objects] == [str(runs / name) for name in ("a", "b", "sweep/c")]
    assert objects[2]["differs"] == {"train.warmup": 7} and objects[0]["bytes"] > 1000


def test_a_page_has_the_table_and_the_curves(runs, cli, tmp_path):
    assert cli("runs", runs, "--page", tmp_path / "runs.html").status == 0
    page = (tmp_path / "runs.html").read_text(encoding="utf-8")
    assert page.count("<tr>") == 4 and "train.warmup=7" in page and "data:image/png;base64," in page


def test_a_folder_without_runs_is_told(cli, tmp_path):
    (tmp_path / "empty").mkdir()
    assert cli("runs", tmp_path / "empty").err.endswith("empty: no run is below this folder\n")
    assert cli("runs", tmp_path / "no").err.endswith(
        "no: no such folder; runs are made by `transformer-mt train`\n"
    )
