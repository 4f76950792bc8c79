"""What a run's folder holds, and the one error for each thing that is missing or damaged."""

import shutil

import pytest

from transformer_mt.errors import InputError, WorkError
from transformer_mt.run_folder import RunFolder, facts_of


@pytest.fixture
def run(tiny_run, tmp_path):
    return RunFolder(shutil.copytree(tiny_run, tmp_path / "run"))


def test_a_finished_run_has_every_file(run):
    assert run.is_run and run.is_finished and not run.is_export
    assert run.config().name == "tiny" and run.tokenizer().src.vocab_size() == 450
    assert run.weights().keys() and run.corpora()[0]["name"] == "toy train"
    assert run.entries()[-1]["event"] == "end"
    assert run.model_file == run.weights_file and len(run.weights_digest()) == 24
    names = [file.name for file in run.translation_files]
    assert names == ["model.safetensors", "config.yaml", "tokenizer.model"]


def test_a_new_folder_has_none(tmp_path):
    run = RunFolder(tmp_path)
    assert not (run.is_run or run.is_finished or run.is_export)
    assert run.model_file is None and run.weights_digest() is None and run.weights_of_parent() is None
    assert run.entries() == run.corpora() == run.scores_files() == run.translation_files == []
    assert run.calibration() == {} and run.newest_checkpoint() is None


def test_what_is_missing_is_named(run, tmp_path):
    with pytest.raises(
        InputError, match="no such folder; a model is the folder of a run; `transformer-mt train demo`"
    ):
        RunFolder(tmp_path / "gone").config()
    run.weights_file.unlink()
    with pytest.raises(InputError, match=f"{run}: no model.safetensors yet; training writes it at its first"):
        run.weights()
    run.config_file.unlink()
    with pytest.raises(InputError, match=f"{run}: must be a run's folder, but holds no config.yaml"):
        run.config()


def test_a_folder_that_is_not_there_lists_the_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "empty"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs/a/config.yaml").touch()
    (tmp_path / "runs/b/config.yaml").touch()
    for name, hint in (("c", "the runs here: runs/a, runs/b"), ("b", "did you mean runs/b?")):
        with pytest.raises(InputError) as error:
            RunFolder(name).config()
        assert str(error.value) == f"{name}: no such folder; a model is the folder of a run; {hint}"


def test_damaged_weights_are_no_mistake_of_the_user(run):
    run.weights_file.write_bytes(run.weights_file.read_bytes()[:100])
    with pytest.raises(
        WorkError, match="is damaged: .*; copy the run's folder again, or resume the training"
    ):
        run.weights()


def test_an_export_has_no_weights_to_train_on(run):
    run.weights_file.rename(run.exported_file)
    assert run.is_export and run.model_file == run.exported_file
    with pytest.raises(InputError, match="must be a run's folder, but is an export"):
        run.weights()


def test_other_weights_have_another_digest(run):
    before = run.weights_digest()
    assert RunFolder(run.path).weights_digest() == before
    with run.weights_file.open("ab") as file:
        file.write(b"x")
    assert run.weights_digest() != before


def test_the_name_of_a_test_set_comes_back_from_its_file(run):
    assert run.set_of(run.scores_file("test-0")) == "test-0"
    shutil.rmtree(run.evaluation, ignore_errors=True)
    run.evaluation.mkdir()
    run.scores_file("b").touch()
    run.scores_file("a").touch()
    assert list(map(run.set_of, run.scores_files())) == ["a", "b"]


def test_facts_of_a_damaged_or_missing_file_are_empty(tmp_path):
    assert facts_of(tmp_path / "missing.json") == {}
    for content in ("[1]", "{"):
        (tmp_path / "facts.json").write_text(content, encoding="utf-8")
        assert facts_of(tmp_path / "facts.json") == {}
