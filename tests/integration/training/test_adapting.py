"""Fine-tuning of a part of a model: LoRA and frozen parts."""

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import train_interrupted
from transformer_mt import Translator, load_config, train
from transformer_mt.companions.wizard.plan import update_memory
from transformer_mt.config.resolve import changed
from transformer_mt.corpora import toy
from transformer_mt.errors import InputError
from transformer_mt.run.batch_budget import longest_batch
from transformer_mt.run_folder import RunFolder

LORA = {"lora": {"rank": 4, "alpha": 8.0}}
KINDS = {
    "lora": LORA,
    "lora in attention": {"lora": {"rank": 2, "modules": ["attention"]}, "optimizer": "adamw"},
    "embeddings": {"freeze": ["embeddings"], "optimizer": "muon", "learning_rate": 0.003},
    "encoder and embeddings": {"freeze": ["encoder", "embeddings"]},
    "decoder": {"freeze": ["decoder"]},
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


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_frozen_stays_and_the_rest_is_trained(kind, child, tiny_run, tmp_path):
    config = child(KINDS[kind])
    run = RunFolder(tmp_path / "run")
    train(config, run.path)
    before, after = RunFolder(tiny_run).weights(), run.weights()
    assert before.keys() == after.keys()  # a model as any other
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    if kind.startswith("lora"):
        inside = ("_attention.",) if "attention" in kind else ("_attention.", "feed_forward.")
        expected = {
            name for name in before if name.endswith(".weight") and any(part in name for part in inside)
        }
        assert moved == expected
    else:
        parts = {"embeddings": "_embedding.", "encoder": "encoder.", "decoder": "decoder."}
        frozen = [text for part, text in parts.items() if part in kind]
        assert moved == {name for name in before if not any(text in name for text in frozen)}


@pytest.mark.parametrize("kind", ["lora", "encoder and embeddings"])
def test_checkpoints_are_small_and_a_killed_training_ends_the_same(kind, child, tmp_path):
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


def test_the_published_model_translates_as_the_one_that_was_trained(child, tmp_path):
    from transformer_mt.training import open_run

    folder = RunFolder(tmp_path / "run")
    config = child({**LORA, "average_checkpoints": 1, "learning_rate": 0.01})
    train(config, folder.path)
    run = open_run(changed(config, "train", max_updates=13), folder)
    lines = [english for english, _ in toy.generate("test", 20)]
    step = run.progress.best_step
    if step == run.progress.step:
        adapted = Translator.of_config(run.model.eval(), run.data.tokenizer, run.config).translate(lines)
        published = Translator.load(folder.path, "cpu").translate(lines)
        assert [r.translation for r in adapted] == [r.translation for r in published]
    run.close()


def test_plans_count_what_is_not_trained(child):
    costs = []
    for kind in ({}, LORA, {"freeze": ["embeddings"]}):
        config = child({**kind, "optimizer": "adamw"})

        batch = longest_batch(20, 400)
        costs.append(update_memory(config, 450, batch, torch.float32))
    full, lora, frozen = costs
    assert lora.state_bytes < 0.5 * full.state_bytes and frozen.state_bytes < 0.9 * full.state_bytes
    assert frozen.parameters == full.parameters < lora.parameters


def test_lora_leaves_frozen_parts_as_they_are(child, tiny_run, tmp_path):
    run = RunFolder(tmp_path / "run")
    train(child({**LORA, "freeze": ["encoder"]}), run.path)
    before, after = RunFolder(tiny_run).weights(), run.weights()
    moved = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"decoder"}


def test_layers_that_are_all_frozen_leave_the_embeddings_to_be_trained(child, tiny_run, tmp_path):
    run = RunFolder(tmp_path / "run")
    train(child({"freeze": ["encoder", "decoder"], "optimizer": "muon"}), run.path)
    before, after = RunFolder(tiny_run).weights(), run.weights()
    assert [name for name in before if not torch.equal(before[name], after[name])] == [
        "src_embedding.tokens.weight"
    ]


def test_the_average_of_lora_is_that_of_whole_weights(child, tmp_path):
    from transformer_mt.checkpoint import load_weights
    from transformer_mt.update.build_updater import averaged, whole

    run, config = RunFolder(tmp_path / "run"), child({**LORA, "learning_rate": 0.05})
    train(config, run.path)
    files = sorted(run.averaging.glob("*.safetensors"))
    frozen = load_weights(run.frozen_file)
    parts = [whole({**frozen, **load_weights(file)}, config.train) for file in files]
    mean = whole({**frozen, **averaged(files, config.train, run.frozen_file)}, config.train)
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, sum(part[name] for part in parts) / len(parts))


def test_mistakes_are_told(child, write_config, tiny_run, tmp_path):
    with pytest.raises(InputError, match="train.lora.rank must be left out without init_from"):
        load_config(write_config(train=LORA))
    with pytest.raises(InputError, match="train.freeze must be left out without init_from"):
        load_config(write_config(train={"freeze": ["encoder"]}))
    with pytest.raises(InputError, match="train.freeze must leave something to be trained"):
        child({"freeze": ["encoder", "decoder", "embeddings"]})
    with pytest.raises(InputError, match="train.freeze must leave the encoder or the decoder to train.lora"):
        child({**LORA, "freeze": ["encoder", "decoder"]})
    config = child(LORA, data={"train": {"toy": "train", "size": 1500, "tag": "<bt>"}})
    with pytest.raises(InputError, match="must leave embeddings to be trained, as 1 tokens are new"):
        train(config, tmp_path / "run")
    done = child(LORA)
    train(done, tmp_path / "done")
    with pytest.raises(InputError, match=r"`train.lora.rank` must stay 4 when a run is resumed, but is 8"):
        train(changed(done, "train", lora=done.train.lora.model_copy(update={"rank": 8})), tmp_path / "done")
