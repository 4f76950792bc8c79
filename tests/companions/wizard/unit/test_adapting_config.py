"""`transformer-mt new --from`: a config that adapts a model."""

import re

import pytest

from tests.helpers.companions import needs
from tests.helpers.faults import update_seconds
from transformer_mt.companions.wizard.write import new_config
from transformer_mt.config import load_config
from transformer_mt.config.load import dump_config
from transformer_mt.corpora import toy
from transformer_mt.errors import InputError
from transformer_mt.run_folder import RunFolder


@pytest.fixture
def files(tmp_path, monkeypatch):
    update_seconds(monkeypatch, lambda config: 0.01)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in toy.generate("train", 600)), encoding="utf-8")
    return [str(pairs)]


def test_a_config_adapts_a_run_with_its_shape_and_vocabulary(files, tiny_run, tmp_path, said):
    out = tmp_path / "mine.yaml"
    new_config("en", "de", files, out, str(tiny_run))
    config = load_config(out)
    assert config.init_from == str(tiny_run) and config.train.optimizer == "adamw"
    assert config.model.model_fields_set == set() and config.tokenizer.model_fields_set == set()
    train = config.train
    assert train.max_updates >= 50 and train.warmup < train.max_updates and train.learning_rate < 0.001
    assert "training will take" in said[-1]
    more = tmp_path / "more.yaml"
    big = [*files, *(str(tmp_path / f"{i}.tsv") for i in range(9))]
    for path in big[1:]:
        (tmp_path / path).write_text((tmp_path / "pairs.tsv").read_text(encoding="utf-8"), encoding="utf-8")
    new_config("en", "de", big, more, str(tiny_run))
    assert load_config(more).train.max_updates > train.max_updates


@pytest.mark.parametrize("is_adapted", [True, False])
def test_a_glossary_asks_for_training_on_terms(is_adapted, files, tiny_run, tmp_path, said):
    (tmp_path / "terms.tsv").write_text("dog\tHund\nzebra\tZebra\n", encoding="utf-8")
    out, parent = tmp_path / "mine.yaml", str(tiny_run) if is_adapted else None
    new_config("en", "de", files, out, parent, glossary=str(tmp_path / "terms.tsv"))
    assert load_config(out).data.changes == ["terms"]
    (note,) = [line for line in said if "terms.tsv" in line]
    assert re.fullmatch(r".*terms.tsv: 2 terms; \d+\.\d% of the pairs have one on both sides", note)
    with pytest.raises(InputError, match="nowhere.tsv: no such file"):
        new_config("en", "de", files, tmp_path / "b.yaml", parent, glossary="nowhere.tsv")


def test_corpora_of_the_parent_are_proposed(files, tiny_run, tmp_path, said, monkeypatch):
    parent = tmp_path / "parent"
    parent.mkdir()
    for path in RunFolder(tiny_run).translation_files:
        (parent / path.name).write_bytes(path.read_bytes())
    text = (parent / "config.yaml").read_text(encoding="utf-8")
    text = text.replace("train: {toy: train, size: 1500}", "train: {source: a.en, target: a.de}")
    (parent / "config.yaml").write_text(text, encoding="utf-8")
    new_config("en", "de", files, tmp_path / "mine.yaml", str(parent))
    written = (tmp_path / "mine.yaml").read_text(encoding="utf-8")
    assert "# - {source: a.en, target: a.de}" in written
    assert "# name files for `valid` and `test`: held-out sets would be pairs that it knows:" in written
    text = re.sub(r"valid: {toy: [^}]*}", "valid: {from_train: {share: 0.1}}", text)
    (parent / "config.yaml").write_text(text, encoding="utf-8")
    new_config("en", "de", files, tmp_path / "other.yaml", str(parent))
    assert "held-out sets would" not in (tmp_path / "other.yaml").read_text(encoding="utf-8")


def test_learned_positions_have_the_parents_length(files, tiny_run, tmp_path, said):
    """The table of positions is the parent's."""
    parent = tmp_path / "parent"
    parent.mkdir()
    for path in RunFolder(tiny_run).translation_files:
        (parent / path.name).write_bytes(path.read_bytes())
    config = load_config(parent / "config.yaml", ["model.position=learned", "data.max_length=77"])
    (parent / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    new_config("en", "de", files, tmp_path / "mine.yaml", str(parent))
    assert load_config(tmp_path / "mine.yaml").data.max_length == 77


@needs("exchange")
def test_a_parent_that_is_not_there_is_told(files, tmp_path, said):
    with pytest.raises(InputError, match="nowhere: must be a folder, or the name of a model on the hub"):
        new_config("en", "de", files, tmp_path / "mine.yaml", "nowhere")
    assert not (tmp_path / "mine.yaml").exists()
