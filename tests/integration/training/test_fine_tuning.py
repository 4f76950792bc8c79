"""Fine-tuning: a training that begins from another run's weights and vocabulary."""

import json
import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.conftest import TINY, train_interrupted
from tests.helpers.companions import needs
from transformer_mt import checkpoint
from transformer_mt.companions.wizard.plan import update_memory
from transformer_mt.config import load_config
from transformer_mt.config.load import dump_config
from transformer_mt.config.resolve import with_parent
from transformer_mt.corpora import toy
from transformer_mt.data.vocabulary.tokenizer import UNK, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.preparation import prepare
from transformer_mt.run.batch_budget import longest_batch
from transformer_mt.run.early_checks import notes_on
from transformer_mt.run_folder import RunFolder
from transformer_mt.training import train

CHILD = {
    "data": {**TINY["data"], "train": {"toy": "train", "size": 300}},
    "train": {
        **TINY["train"],
        "max_updates": 8,
        "validate_every": 4,
        "save_every": 4,
        "learning_rate": 0.001,
    },
    "decode": {"beam": 1},  # evaluations are not about the search
}


@pytest.fixture
def parent(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "parent")


@pytest.fixture
def child_config(tmp_path, parent):
    """Writes the config of a child of `parent`, with these sections."""

    def write(**sections):
        path = tmp_path / "child.yaml"
        path.write_text(yaml.safe_dump({"init_from": str(parent), **CHILD, **sections}), encoding="utf-8")
        return path

    return write


def begun(path):
    """The config of a child that is hardly trained."""
    return load_config(path, ["train.max_updates=1"])


def weights(folder):
    return checkpoint.load_weights(folder / "model.safetensors")


def test_a_guided_layer_may_be_one_that_only_the_parent_has(child_config, parent):
    guided = {**CHILD["train"], "guided_alignment": {"weight": 0.1, "layer": 7}}
    config = load_config(child_config(train=guided))  # the default has six
    with pytest.raises(InputError, match="must be at most model.num_decoder_layers \\(1\\), but is 7"):
        with_parent(config, RunFolder(parent).config())


def test_a_child_may_say_how_weights_begin_since_the_parents_are_there(child_config, parent):
    config = load_config(child_config(model={"init": "depth_scaled"}))
    assert with_parent(config, RunFolder(parent).config()).model.init == "depth_scaled"


def test_pieces_of_both_sides_need_one_vocabulary(child_config, parent, tmp_path):
    """The pieces would stand for others on the target side."""
    config = yaml.safe_load((parent / "config.yaml").read_text(encoding="utf-8"))
    config["tokenizer"]["shared"] = config["model"]["tie_embeddings"] = False
    (parent / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    data = {**CHILD["data"], "language_pieces": "both"}
    with pytest.raises(InputError, match="language_pieces` must not be both with a parent of two vocabular"):
        with_parent(load_config(child_config(data=data)), RunFolder(parent).config())


def test_it_begins_with_the_weights_the_vocabulary_and_the_omitted_keys_of_the_parent(
    child_config, parent, tmp_path, capsys
):
    config = load_config(child_config(model={"dropout": 0.3}, tokenizer={"bpe_dropout": 0.1}))
    folder = train(config, tmp_path / "child")
    first = checkpoint.load(folder / "checkpoints" / "step-00000000").tensors["model"]
    assert all(torch.equal(weight, weights(parent)[name]) for name, weight in first.items())
    mine, theirs = load_config(folder / "config.yaml"), load_config(parent / "config.yaml")
    assert mine.model == theirs.model.model_copy(update={"dropout": 0.3})
    assert mine.tokenizer == theirs.tokenizer.model_copy(update={"bpe_dropout": 0.1})
    assert Tokenizer.load(folder).fingerprint == Tokenizer.load(parent).fingerprint
    assert f"| fine-tuned from | {parent} |" in " ".join((folder / "report.md").read_text().split())
    assert "and this run" not in capsys.readouterr().err  # the directions are the same
    with pytest.raises(InputError, match="`init_from` must stay '.*parent' when a run is resumed, but is"):
        train(load_config(child_config(init_from=str(tmp_path))), folder)


def test_a_parent_of_another_direction_is_reported(child_config, parent, tmp_path, capsys):
    swapped = {**CHILD["data"], "source_lang": "de", "target_lang": "en"}
    train(begun(child_config(data=swapped)), tmp_path / "child")
    assert f"note: {parent} translates en to de, and this run de to en" in capsys.readouterr().err


def test_what_does_not_fit_the_parent_is_refused_at_once(child_config, parent, tmp_path):
    with pytest.raises(InputError, match="`model.d_model` must be 32, as in .*parent, but is 64"):
        train(load_config(child_config(model={"d_model": 64})), tmp_path / "child")
    assert not (tmp_path / "child").exists()


def test_a_folder_without_a_model_is_no_parent(child_config, parent, tmp_path):
    (parent / "model.safetensors").unlink()
    with pytest.raises(
        InputError, match=r"`init_from` must be the folder of a trained run; .*: no model.safetensors yet"
    ):
        train(load_config(child_config()), tmp_path / "child")


def test_an_interrupted_child_ends_the_same_without_its_parent(child_config, parent, tmp_path):
    """Killed before any update, and after a checkpoint. Sentences that the parent was scored on stay out."""
    corpora = [{"toy": "train", "size": 300}, {"toy": "test", "size": 30, "name": "t"}]
    config = load_config(child_config(data={**CHILD["data"], "train": corpora}))
    whole = train(config, tmp_path / "whole")
    for updates in (0, 6):
        train_interrupted(config, tmp_path / f"cut{updates}", updates)
    shutil.rmtree(parent)
    for updates in (0, 6):
        cut = train(config, tmp_path / f"cut{updates}")
        assert (cut / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
        assert leaked(cut) >= 30


def test_fine_tuning_never_ends_worse_than_its_parent_and_says_so(child_config, parent, tmp_path, said):
    words = ["train.learning_rate=0.3", "train.warmup=1", "train.average_checkpoints=1"]
    folder = train(load_config(child_config(), words), tmp_path / "child")
    assert all(torch.equal(weight, weights(parent)[name]) for name, weight in weights(folder).items())
    assert f"{folder} holds the weights that the training began with: no update scored better" in said[-1]


def test_a_new_tag_is_a_new_piece_and_changes_no_other(child_config, parent, tmp_path):
    """Of a parent with a given vocabulary, too: the child's is its parent's."""
    text = (parent / "config.yaml").read_text(encoding="utf-8")
    text = text.replace("\n  file: null", "\n  file: spm.model")
    (parent / "config.yaml").write_text(text, encoding="utf-8")
    assert load_config(parent / "config.yaml").tokenizer.file == "spm.model"
    tagged = {"toy": "train", "size": 300, "tag": "<bt>"}
    config = load_config(child_config(data={**CHILD["data"], "train": tagged}))
    folder = train(config, tmp_path / "child")
    assert load_config(folder / "config.yaml").tokenizer.file is None
    old, new = Tokenizer.load(parent), Tokenizer.load(folder)
    assert new.all_pieces_src == [*old.all_pieces_src, "<bt>"]
    assert new.control_ids == {"<bt>": 450}
    text = ["Der Hund sieht <bt> die Katze.", "<bt>"]
    assert new.encode_src(text) == old.encode_src(text)
    first = checkpoint.load(folder / "checkpoints" / "step-00000000").tensors["model"]
    name = next(name for name, weight in first.items() if len(weight) == 451)
    assert torch.equal(first[name][:450], weights(parent)[name])
    assert torch.equal(first[name][450], weights(parent)[name][UNK])


def test_a_tag_that_is_a_piece_of_text_is_refused(child_config, parent, tmp_path):
    piece = Tokenizer.load(parent).all_pieces_src[300]
    tagged = {"toy": "train", "size": 300, "tag": piece}
    with pytest.raises(InputError, match="a tag must not be a vocabulary token"):
        train(load_config(child_config(data={**CHILD["data"], "train": tagged})), tmp_path / "child")


@needs("lab")
def test_evaluation_says_what_was_gained_and_what_forgotten(child_config, parent, tmp_path, cli):
    test = [{"toy": "train", "size": 25, "name": "new"}]
    config = child_config(data={**CHILD["data"], "test": test})
    folder = train(load_config(config), tmp_path / "child")
    result = cli("evaluate", folder)
    assert result.status == 0, result.err
    printed = result.out
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "## Gained and forgotten by fine-tuning" in report
    for text in (printed, report):
        rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| toy")]
        rows = [[cell.strip() for cell in row] for row in rows if len(row) == 8]
        assert [row[2] for row in rows] == ["BLEU", "chrF", "TER"] * 2, (
            "of its own test set and of the parent's"
        )
        assert rows[0][0] == "toy train, 25 sentences" and rows[3][0] == f"toy test of {parent}, 30 sentences"
        assert all(float(row[4]) - float(row[3]) == pytest.approx(float(row[5]), abs=0.011) for row in rows)
    (parent / "model.safetensors").unlink()
    result = cli("evaluate", folder)
    assert result.status == 0
    assert "its weights are not those that this model started from" in result.err


@needs("lab")
def test_a_parent_that_cannot_be_compared_does_not_stop_the_evaluation(child_config, parent, tmp_path, cli):
    folder = train(begun(child_config()), tmp_path / "child")
    text = (parent / "config.yaml").read_text(encoding="utf-8")
    missing = "test: [{source: gone.en, target: gone.de}]"
    lines = [missing.join(("  ", "")) if line.startswith("  test:") else line for line in text.split("\n")]
    (parent / "config.yaml").write_text("\n".join(lines), encoding="utf-8")
    result = cli("evaluate", folder)
    assert result.status == 0, result.err
    assert "no comparison with" in result.err and "gone.en" in result.err
    assert "## Test" in (folder / "report.md").read_text(encoding="utf-8")


@needs("lab")
def test_tables_of_another_search_or_other_files_are_not_kept(child_config, parent, tmp_path, cli):
    folder = train(begun(child_config()), tmp_path / "child")
    (tmp_path / "a.en").write_text("A dog sleeps.\n")
    (tmp_path / "a.de").write_text("Ein Hund schläft.\n")
    files = ["--source", tmp_path / "a.en", "--reference", tmp_path / "a.de"]
    for words in (["--beam", "2", "--robust"], [*files, "--robust"]):
        result = cli("evaluate", folder, *words)
        assert result.status == 0, result.err
        assert "in capitals" in result.out
        assert "## Robustness" not in (folder / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("fresh", [False, True])
def test_a_run_is_not_its_own_parent(child_config, parent, fresh):
    with pytest.raises(InputError, match="`init_from` must be another run, but is .*parent"):
        train(load_config(child_config()), parent, fresh)
    assert (parent / "model.safetensors").exists()


def test_the_resolved_config_has_the_parents_keys(child_config, tmp_path, cli):
    result = cli("config", "show", child_config())
    assert result.status == 0 and "  d_model: 32 " in result.out
    result = cli("config", "show", child_config(init_from=str(tmp_path / "gone")))
    assert result.status == 2 and "gone: no such folder" in result.err


def leaked(folder):
    return sum(corpus["counts"].get("in validation or test", 0) for corpus in RunFolder(folder).corpora())


def test_what_the_parent_was_scored_on_is_not_trained_on(child_config, parent, tmp_path, cli, said):
    """Neither by its child nor by the child of that."""
    corpora = [{"toy": "train", "size": 100}, {"toy": "test", "size": 30, "name": "the parent's test set"}]
    data = {**CHILD["data"], "train": corpora, "test": [{"toy": "train", "size": 5, "name": "own"}]}
    child = train(begun(child_config(data=data)), tmp_path / "child")
    assert leaked(child) >= 30 and not any("has not recorded" in line for line in said)
    path = child_config(data=data)
    path.write_text(path.read_text().replace(str(parent), str(child)), encoding="utf-8")
    assert leaked(train(begun(path), tmp_path / "grandchild")) == leaked(child)
    assert "| ? / ? " not in cli("evaluate", child).out


@needs("lab")
def test_a_parent_that_has_recorded_nothing_is_named_and_the_rows_are_marked(
    child_config, parent, tmp_path, cli, said
):
    (parent / "seen.safetensors").unlink()
    data = {**CHILD["data"], "test": [{"toy": "train", "size": 5, "name": "own"}]}
    child = train(begun(child_config(data=data)), tmp_path / "child")
    assert any(f"{parent} has no full record of its training and test data: none" in line for line in said)
    out = cli("evaluate", child).out
    assert "| ? / ? " in out and "?: not recorded" in out
    assert any("derives from, has no record of its training data" in line for line in said)


@needs("lab")
def test_test_sentences_that_the_parent_was_trained_on_are_named_and_marked(
    child_config, parent, tmp_path, cli, said
):
    """Sentences of its own training corpora, too, where they are held out of the child's."""
    new = tmp_path / "new.tsv"
    new.write_text("en\tde\n" + "".join(f"A dog {n}.\tEin Hund {n}.\n" for n in range(10)), encoding="utf-8")
    test = [{"toy": "train", "size": 20, "name": "known"}, {"file": str(new)}]
    train_on = {"toy": "test", "size": 300}
    child = train(
        begun(child_config(data={**CHILD["data"], "train": train_on, "test": test})), tmp_path / "c"
    )
    assert any("of the 20 sentences of known were in the training of a model" in line for line in said)
    known, new = cli("evaluate", child, "--json").out.strip().split("\n")[:2]
    assert json.loads(known)["seen"] == {"count": 20, "total": 20, "is_complete": True}
    assert json.loads(new)["seen"]["count"] == 0
    result = cli("evaluate", child)
    assert "  20 of 20 sentences seen before, in training, validation or a memory" in result.out
    assert "| 100.0 % / 100.0 % " in result.out and "| 0 % / 0 % " in result.out
    report = (child / "report.md").read_text(encoding="utf-8")
    assert "| seen " in report and "| 100.0 % " in report


def test_a_test_set_that_was_named_later_is_not_trained_on_by_a_child(child_config, parent, tmp_path):
    run = RunFolder(parent)
    config = load_config(run.config_file)
    later = config.model_validate(
        {
            **config.model_dump(),
            "data": {**config.data.model_dump(exclude_unset=True), "test": [{"toy": "test", "size": 40}]},
        }
    )
    train(later, parent)
    data = {
        **CHILD["data"],
        "train": [{"toy": "train", "size": 100}, {"toy": "test", "size": 60, "name": "t"}],
    }
    assert leaked(train(begun(child_config(data=data)), tmp_path / "child")) >= 40


@needs("inspection")
def test_letters_that_the_parents_vocabulary_lacks_are_named(untrained_run, tmp_path, cli, said, monkeypatch):
    """A vocabulary without byte pieces reads <unk> for them: in each line, silently."""
    monkeypatch.chdir(tmp_path)
    for name, size in (("k", 300), ("kv", 20)):
        pairs = list(toy.generate("train" if name == "k" else "valid", size))
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            text = text.translate(str.maketrans("rt", "ɾŧ")) if language == "de" else text
            (tmp_path / f"{name}.{language}").write_text(text, encoding="utf-8")
    parent = RunFolder(untrained_run(byte_fallback=False))
    data = {"train": {"source": "k.en", "target": "k.de"}, "valid": {"source": "kv.en", "target": "kv.de"}}
    config = load_config(parent.config_file)
    config = config.model_validate(
        {
            "name": "child",
            "init_from": str(parent),
            "data": {**data, "source_lang": "en", "target_lang": "de"},
        }
    )
    note = "the vocabulary lacks ɾ ŧ, which occur in 99.3% of the pairs: they become <unk>"
    prepared = prepare(config, parent.tokenizer())
    assert any(note in line for line in notes_on(config, config, prepared))
    (tmp_path / "c.yaml").write_text(dump_config(config), encoding="utf-8")
    assert "he vocabulary lacks ɾ ŧ" in cli("inspect", "c.yaml").out


# Fine-tuning of a part of a model: LoRA and frozen parts.


LORA = {"lora": {"rank": 4, "alpha": 8.0}}
KINDS = {
    "lora": LORA,
    "lora in attention": {"lora": {"rank": 2, "modules": ["attention"]}, "optimizer": "adamw"},
    "embeddings": {"freeze": ["embeddings"], "optimizer": "muon", "learning_rate": 0.003},
    "encoder and embeddings": {"freeze": ["encoder", "embeddings"]},
}


@pytest.fixture
def child(tiny_run, write_config):
    def config(changes, **sections):
        values = {"max_updates": 12, "validate_every": 6, "save_every": 3, "average_checkpoints": 2}
        return load_config(
            write_config(
                "child.yaml", name="child", init_from=str(tiny_run), train={**values, **changes}, **sections
            )
        )

    return config


@pytest.mark.parametrize("kind", ["lora in attention", "embeddings", "encoder and embeddings"])
def test_what_is_frozen_stays_and_the_rest_is_trained(kind, child, tiny_run, tmp_path):
    config = child(KINDS[kind])
    run = RunFolder(tmp_path / "run")
    train(config, run.path)
    before, after = RunFolder(tiny_run).weights(), run.weights()
    assert before.keys() == after.keys()  # a model as any other
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    if kind.startswith("lora"):
        assert moved == {name for name in before if name.endswith(".weight") and "_attention." in name}
    else:
        parts = {"embeddings": "_embedding.", "encoder": "encoder."}
        frozen = [text for part, text in parts.items() if part in kind]
        assert moved == {name for name in before if not any(text in name for text in frozen)}


@pytest.mark.parametrize("kind", ["lora", "encoder and embeddings"])
def test_checkpoints_are_small_and_a_killed_training_ends_the_same(kind, child, tmp_path):
    from transformer_mt.update.build_updater import averaged, whole

    config = child(KINDS[kind])
    straight, killed = RunFolder(tmp_path / "straight"), RunFolder(tmp_path / "killed")
    train(config, straight.path)
    train_interrupted(config, killed.path, updates=8)
    train(config, killed.path)
    assert straight.weights_file.read_bytes() == killed.weights_file.read_bytes()
    assert straight.frozen_file.read_bytes() == killed.frozen_file.read_bytes()
    newest = sorted(killed.checkpoints.glob("step-*"))[-1]
    trained, frozen = load_file(newest / "model.safetensors"), load_file(killed.frozen_file)
    assert not trained.keys() & frozen.keys()
    size = sum(tensor.numel() for tensor in trained.values())
    most = {"lora": 0.3, "encoder and embeddings": 0.6}[kind]
    assert size < most * sum(tensor.numel() for tensor in frozen.values())
    if kind == "lora":
        assert all(name.endswith(("lora_a", "lora_b")) for name in trained)
        files = sorted(straight.averaging.glob("*.safetensors"))
        assert len(files) == 2
        parts = [whole({**frozen, **load_file(file)}, config.train) for file in files]
        mean = whole({**frozen, **averaged(files, config.train, straight.frozen_file)}, config.train)
        for name, tensor in mean.items():  # the average is that of whole weights
            torch.testing.assert_close(tensor, sum(part[name] for part in parts) / len(parts))


def test_plans_count_what_is_not_trained(child):
    costs = []
    for kind in ({}, LORA, {"freeze": ["embeddings"]}):
        config = child({**kind, "optimizer": "adamw"})

        batch = longest_batch(20, 400)
        costs.append(update_memory(config, 450, batch, torch.float32))
    full, lora, frozen = costs
    assert lora.state_bytes < 0.5 * full.state_bytes and frozen.state_bytes < 0.9 * full.state_bytes
    assert frozen.parameters == full.parameters
    assert sum(full.parameters.values()) < sum(lora.parameters.values())


def test_lora_leaves_frozen_parts_as_they_are(child, tiny_run, tmp_path):
    run = RunFolder(tmp_path / "run")
    train(child({**LORA, "freeze": ["encoder"]}), run.path)
    before, after = RunFolder(tiny_run).weights(), run.weights()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    adapted = {name for name in before if "_attention." in name or "feed_forward." in name}
    assert moved == {name for name in adapted if name.startswith("decoder.") and name.endswith(".weight")}


def test_layers_that_are_all_frozen_leave_the_embeddings_to_be_trained(child, tiny_run, tmp_path):
    run = RunFolder(tmp_path / "run")
    train(child({"freeze": ["encoder", "decoder"], "optimizer": "muon"}), run.path)
    before, after = RunFolder(tiny_run).weights(), run.weights()
    assert [name for name in before if not torch.equal(before[name], after[name])] == [
        "src_embedding.tokens.weight"
    ]


def test_mistakes_are_told(child, tmp_path):
    with pytest.raises(InputError, match="train.freeze must leave something to be trained"):
        child({"freeze": ["encoder", "decoder", "embeddings"]})
    with pytest.raises(InputError, match="train.freeze must leave the encoder or the decoder to train.lora"):
        child({**LORA, "freeze": ["encoder", "decoder"]})
    config = child(LORA, data={"train": {"toy": "train", "size": 1500, "tag": "<bt>"}})
    with pytest.raises(InputError, match="must leave embeddings to be trained, as 1 tokens are new"):
        train(config, tmp_path / "run")
