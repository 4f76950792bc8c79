"""transformer-mt prepare"""

import yaml

from tests.conftest import TINY


def test_it_prints_where_the_data_are_and_a_training_takes_them(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    values = {**TINY, "train": {**TINY["train"], "max_updates": 2, "validate_every": 2}}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    first = cli("prepare", "tiny.yaml")
    (folder,) = (path.parent for path in tmp_path.glob("cache/*/facts.json"))
    assert (first.status, first.out) == (0, f"{folder}\n")
    assert "learning 450 bpe tokens" in first.err
    again = cli("prepare", "tiny.yaml")
    assert again.out == first.out and "learning 450" not in again.err
    trained = cli("train", "tiny.yaml")
    assert trained.status == 0 and "learning 450" not in trained.err
    elsewhere = cli("prepare", tmp_path / "tiny.yaml", f"data.preparation.folder={tmp_path / 'shared'}")
    assert elsewhere.out == f"{tmp_path / 'shared' / folder.name}\n"


def test_mistakes_are_one_line(cli, tmp_path):
    (tmp_path / "a.yaml").write_text("name: a\n", encoding="utf-8")
    for words, message in (
        (["nowhere.yaml"], "nowhere.yaml: no such config file"),
        ([tmp_path / "a.yaml", "data.preparation.engine=spark"], "must be 'local' or 'ray', but is 'spark'"),
        ([tmp_path / "a.yaml", "data.preparation.engine=ray"], "engine: ray needs the key folder"),
    ):
        result = cli("prepare", *words)
        assert result.status == 2 and message in result.err
