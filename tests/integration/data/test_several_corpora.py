"""A run on several corpora with tags and held-out sets, through the real command line."""

import json
import re
import shutil
from contextlib import closing

import pytest
import yaml

from tests.conftest import TINY
from tests.helpers.command import run_command
from tests.helpers.companions import needs
from transformer_mt import Translator, train
from transformer_mt.checkpoint import load_weights, save_weights
from transformer_mt.config.load import load_config
from transformer_mt.corpora.held_out import EvaluationSet, read_set
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.files import read_objects
from transformer_mt.preparation import prepare
from transformer_mt.run_folder import RunFolder
from transformer_mt.training import open_run

DATA = {
    **TINY["data"],
    "train": [
        {"toy": "train", "size": 1200, "name": "clean", "license": "CC0"},
        {"toy": "valid", "size": 300, "name": "other", "tag": "<other>", "weight": 0.5},
    ],
    "valid": {"from_train": {"share": 0.03, "max": 20}},
    "test": [{"from_train": {"share": 0.03, "max": 25}}, {"toy": "test", "size": 10, "tag": "<other>"}],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    (folder / "tiny.yaml").write_text(yaml.safe_dump({**TINY, "data": DATA}), encoding="utf-8")
    result = run_command("train", "tiny.yaml", cwd=folder)
    assert result.status == 0, result.err
    assert "| clean" in result.err and "uses per epoch" in result.err
    return folder / "runs/tiny"


def test_what_became_of_the_corpora_is_in_the_folder_and_the_report(run):
    clean, other = json.loads((run / "data.json").read_text(encoding="utf-8"))
    assert (clean["name"], other["name"], other["uses_per_epoch"]) == ("clean", "other", 0.5)
    assert clean["counts"]["held out"] > 20 and clean["target_tokens"] > 1000
    report = (run / "report.md").read_text(encoding="utf-8")
    assert "clean, other: en to de." in report and "## Training pairs" in report
    assert f"{clean['source_tokens']:,}" in report


def test_held_out_sets_are_scored_from_the_runs_folder(run, cli, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    status, out, err = cli("evaluate", run, "--beam", "1")
    assert status == 0, err
    assert "test-0: 3.00% of the training corpora, 25 sentences" in out and "test-1: toy test, 10" in out
    assert len((run / "held_out.valid.jsonl").read_text(encoding="utf-8").strip().split("\n")) == 20
    held_out = (run / "held_out.test.jsonl").read_text(encoding="utf-8").strip().split("\n")
    rows = (run / "evaluation/test-0.jsonl").read_text(encoding="utf-8").strip().split("\n")
    assert [json.loads(line)[0] for line in held_out] == [json.loads(row)["source"] for row in rows]


@needs("lab")
def test_the_page_of_a_comparison_counts_no_word_of_a_held_out_set_as_trained_on(run):
    from transformer_mt.companions.lab.compare_systems import _word_counts
    from transformer_mt.companions.lab.comparison import count_words

    config = load_config(run / "config.yaml")
    held_out = EvaluationSet("test-0", "", list(read_set(config.data.test[0], ("en", "de"), run, "test")))
    whole, trained = _word_counts(config, []), _word_counts(config, [held_out])
    assert len(held_out.sources) == 25 and whole - trained == count_words(held_out.sources)


def test_a_tag_changes_what_the_model_reads_and_an_unknown_one_is_refused(run, cli):
    words = ["translate", run, "The dog sleeps. A cat sings.", "--json", "--align", "--n-best", "2"]
    _, plain, _ = cli(*words)
    status, tagged, _ = cli(*words, "--tag", "<other>")
    plain, tagged = json.loads(plain), json.loads(tagged)
    assert status == 0 and plain["score"] != tagged["score"]
    assert [piece for piece in tagged["source_tokens"] if piece == "<other>"] == ["<other>"] * 2
    assert "<other>" not in plain["source_tokens"] and "<other>" not in tagged["tokens"]
    status, out, err = cli(*words, "--tag", "<what>")
    assert (status, out, err) == (2, "", "--tag must be one of <other>, but is <what>\n")


def test_a_translation_is_scored_with_its_tag(run, cli, tmp_path):
    (tmp_path / "in.txt").write_text("The dog sleeps.\n", encoding="utf-8")
    translated = tmp_path / "out.jsonl"
    tag = ["--tag", "<other>"]
    assert cli("translate", run, "-i", tmp_path / "in.txt", "--json", "-o", translated, *tag)[0] == 0
    row = json.loads(translated.read_text(encoding="utf-8"))
    (tmp_path / "out.txt").write_text(row["translation"] + "\n", encoding="utf-8")
    files = ["--source", tmp_path / "in.txt", "--target", tmp_path / "out.txt"]

    def log_prob(*words):
        status, out, err = cli("score", run, *words)
        assert status == 0, err
        return float(out.split("\t")[0])

    assert log_prob("--translations", translated) == pytest.approx(row["log_prob"], abs=1e-3)
    # The text may be divided into other tokens than those that the model has written.
    again = Tokenizer.load(run)
    if again.pieces_tgt(again.encode_tgt([row["translation"]])[0]) == row["tokens"]:
        assert log_prob(*files, *tag) == pytest.approx(row["log_prob"], abs=1e-3)
    assert log_prob(*files) != pytest.approx(log_prob(*files, *tag), abs=1e-3)
    status, _, err = cli("score", run, "--translations", translated, *tag)
    assert status == 2 and "--tag requires --source" in err


@needs("exchange")
def test_an_export_has_the_tags(run, tmp_path, cli):
    pytest.importorskip("ctranslate2")
    assert cli("export", run, tmp_path / "ct2", "--with", "config", "--with", "held-out")[0] == 0
    words = ["The dog sleeps.", "--json", "--tag", "<other>"]
    ours, theirs = (json.loads(cli("translate", model, *words)[1]) for model in (run, tmp_path / "ct2"))
    assert ours["translation"] == theirs["translation"]
    assert ours["score"] == pytest.approx(theirs["score"], abs=1e-3)
    status, out, err = cli("evaluate", tmp_path / "ct2")
    assert status == 0 and "test-0: 3.00% of the training corpora, 25 sentences" in out, err


def test_a_tagged_test_set_is_translated_with_its_tag(run, cli, tmp_path):
    cli("evaluate", run)
    rows = [
        json.loads(row) for row in (run / "evaluation/test-1.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    (tmp_path / "in.txt").write_text("".join(row["source"] + "\n" for row in rows), encoding="utf-8")

    def scores(*words):
        _, out, _ = cli("translate", run, "-i", tmp_path / "in.txt", "--json", *words)
        return [round(json.loads(line)["score"], 4) for line in out.strip().split("\n")]

    assert [round(row["score"], 4) for row in rows] == scores("--tag", "<other>") != scores()


def test_a_tagged_validation_set_is_translated_with_its_tag(run, tmp_path):
    parent = RunFolder(shutil.copytree(run, tmp_path / "parent"))
    weights = load_weights(parent.weights_file)
    # So short a training has taught little of the tag.
    weights["src_embedding.tokens.weight"][parent.tokenizer().control_id("<other>")] *= 100
    save_weights(parent.weights_file, weights)
    data = {**DATA, "valid": {"toy": "valid", "size": 10, "tag": "<other>"}, "test": []}
    values = {"data": data, "train": {**TINY["train"], "max_updates": 1, "learning_rate": 1e-9}}
    path = tmp_path / "child.yaml"
    path.write_text(yaml.safe_dump({**values, "init_from": str(parent)}), encoding="utf-8")
    child = train(load_config(path), tmp_path / "child")
    (first, *_) = (e for e in read_objects(child / "metrics.jsonl") if e["event"] == "valid")
    translator = Translator.load(parent.path, device="cpu", decode={"beam": 1})
    sources = [source for source, _, _ in first["samples"]]
    with_tag, without = (
        [result.translation for result in translator.translate(sources, tag=tag)] for tag in ("<other>", None)
    )
    assert [translation for *_, translation in first["samples"]] == with_tag != without


def test_an_epoch_has_the_weights_and_an_update_the_size_of_the_config(write_config, tmp_path):
    data = {
        "train": [{"toy": "train", "size": 400, "weight": 2.0}, {"toy": "valid", "size": 300, "weight": 0.5}]
    }
    config = load_config(write_config(data=data), ["train.update_tokens=1500", "train.batch_tokens=300"])
    with closing(open_run(config, RunFolder(tmp_path / "run"))) as opened:
        sizes, sentences, updates = opened.data.sizes, 0, []
        while opened.batches.epochs < 1.0:
            batches = opened.batches.next_update()
            sentences += sum(len(batch.src) for batch in batches)
            assert all(batch.num_positions <= 300 for batch in batches)
            updates.append(sum(batch.num_positions for batch in batches))
    assert sentences == 2 * sizes[0] + sizes[1] // 2
    assert 1200 < sorted(updates)[len(updates) // 2] <= max(updates) <= 1500


def test_no_search_writes_a_tag(run):
    translator = Translator.load(run, device="cpu")
    assert translator.tokenizer.control_id("<other>") in translator.engine.special_ids.never


@pytest.mark.parametrize(
    "data, message",
    [
        (
            {"train": [{"toy": "train", "name": "a"}, {"toy": "valid", "name": "a"}]},
            "the names of the corpora in data.train must differ, but are a, a",
        ),
        (
            {"train": [{"toy": "train", "weight": 0.0}]},
            "`data.train.0.weight` must be greater than 0, but is 0.0",
        ),
        ({"train": [{"toy": "train"}, {"tyo": "valid"}]}, "but is {'tyo': 'valid'}; did you mean `toy`?"),
        ({"valid": {"toy": "valid", "weight": 2.0}}, "data.valid must not have a weight"),
        ({"test": [{"from_train": {}}, {"from_train": {}}]}, "data.test must have at most one from_train"),
        ({"train": [{"toy": "train", "tag": "a b"}]}, "`data.train.0.tag` must be one word"),
        (
            {"train": [{"toy": "train", "tag": "is"}]},
            "the `tag` of toy train must not be <s>, </s>, <pad>, <unk> or only letters and digits, "
            "but is is; choose one such as <bt>",
        ),
        (
            {"train": [{"toy": "train", "tag": "<a>"}], "valid": {"from_train": {"share": 0.5}}},
            "data.valid.from_train must have a training corpus of translation without tag that is not "
            "synthetic, but there is none; name a file",
        ),
    ],
)
def test_wrong_corpora_are_refused(write_config, data, message):
    with pytest.raises(InputError, match=re.escape(message)):
        prepare(load_config(write_config(data=data)))


def test_update_tokens_and_accumulate_exclude_each_other(write_config):
    with pytest.raises(InputError, match="train.accumulate must be 1 with train.update_tokens"):
        load_config(write_config(train={"update_tokens": 2000, "accumulate": 2}))
