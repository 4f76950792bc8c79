"""The core works without any companion, and without each: what belonged to it is answered in one line."""

import pytest
import yaml

from tests.conftest import TINY
from tests.helpers.installation import OURS, Installation
from transformer_mt.companion import companions


def requiring(name):
    """The companions that are left out without one: those that require it, and those that require these."""
    direct = {other for other in OURS if name in companions()[other].requires}
    return direct.union(*map(requiring, direct))


def without(name):
    """The companions that are left when one is deleted, and those that required it."""
    return tuple(other for other in OURS if other != name and other not in requiring(name))


@pytest.mark.parametrize("name", OURS)
def test_without_a_companion_its_commands_are_gone(name, tmp_path):
    installation = Installation(tmp_path, deleted=(name,), declared=without(name))
    shown = installation.run("--help")
    assert shown.status == 0 and shown.err == ""
    assert not any(f"\n  {command} " in shown.out for command in companions()[name].commands)
    for command in list(companions()[name].commands)[:1]:
        status, out, err = installation.run(command, "x")
        assert (status, out) == (2, "") and err.count("\n") == 1 and f"{command} is no command" in err
    for other in without(name):
        assert all(f"\n  {command} " in shown.out for command in companions()[other].commands)


@pytest.mark.parametrize("name", ["exchange", "serving"])
def test_a_folder_that_was_deleted_is_named_in_one_line(name, tmp_path):
    """Its entry point is still there. What requires it is left out, too."""
    shown = Installation(tmp_path, deleted=(name,)).run("--help")
    first, *others = shown.err.splitlines()
    assert shown.status == 0 and first.startswith(f"note: the companion {name} is left out: ")
    assert [line.split()[3] for line in others] == sorted(requiring(name))
    gone = {name, *requiring(name)}
    assert all(line.partition("it requires ")[2] in gone for line in others)


def test_an_installation_without_entry_points_says_what_is_missing(tmp_path):
    """As of a checkout that was updated without installing it again."""
    shown = Installation(tmp_path, declared=()).run("--help")
    assert shown.status == 0 and shown.err == (
        "note: no companion is registered, so commands are missing; install transformer-mt again\n"
    )


def used(installation, folder):
    """Train, translate and score as `make demo` does."""
    (folder / "tiny.yaml").write_text(yaml.safe_dump(TINY), encoding="utf-8")
    (folder / "lines").write_text("The dog sleeps.\n\n", encoding="utf-8")
    trained, translated, scored = installation.run_all(
        ("train", "tiny.yaml"),
        ("translate", "runs/tiny", "--json", "-i", "lines"),
        ("evaluate", "runs/tiny"),
        cwd=folder,
    )
    assert trained.status == 0 and "done: runs/tiny holds update 24" in trained.err
    assert translated.status == 0 and translated.out.count("\n") == 2
    assert scored.status == 0 and "BLEU" in scored.out
    return translated.out


def test_without_any_companion_the_core_trains_translates_and_scores(tiny_run, cli, tmp_path):
    installation = Installation(tmp_path / "installed", deleted=OURS, declared=())
    written = used(installation, tmp_path)
    run = tmp_path / "runs/tiny"
    assert (run / "model.safetensors").read_bytes() == (tiny_run / "model.safetensors").read_bytes()
    assert cli("translate", tiny_run, "--json", "-i", tmp_path / "lines").out == written
    (tmp_path / "a.docx").write_bytes(b"PK")
    (tmp_path / "opus").mkdir()
    (tmp_path / "opus/config.json").write_text("{}", encoding="utf-8")
    changed = {"init_from": {"huggingface": "opus"}}, {"data": {**TINY["data"], "train": {"shards": "x"}}}
    changed[0]["name"] = "adapted"
    for number, change in enumerate(changed):
        (tmp_path / f"{number}.yaml").write_text(yaml.safe_dump({**TINY, **change}), encoding="utf-8")
    mistakes = {
        ("translate", run, "-i", "a.docx"): "a.docx: must be a text file (.txt), but ends in .docx; no com",
        ("translate", "opus", "x"): "opus: must be a run's folder, but holds no config.yaml",
        ("train", "0.yaml"): "`init_from` must be the folder of a run, but is opus, and no installed compan",
        ("train", "1.yaml"): "`data.train` must be a corpus: {split: ...} of data.hub, ",
        ("train", "tiny.yaml", "data.preparation.engine=ray"): "`data.preparation.engine` must be 'local'",
    }
    for result, message in zip(installation.run_all(*mistakes, cwd=tmp_path), mistakes.values()):
        assert result.status == 2 and message in result.err and "Traceback" not in result.err, result.err


@pytest.mark.long
@pytest.mark.parametrize("name", OURS)
def test_without_a_companion_the_core_trains_translates_and_scores(name, tmp_path):
    used(Installation(tmp_path / "installed", deleted=(name,), declared=without(name)), tmp_path)
