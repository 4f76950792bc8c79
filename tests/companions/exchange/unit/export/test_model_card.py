"""The card of an exported model: the hub reads it, and it says only what the run knows."""

import json
import shutil

import pytest
import yaml
from huggingface_hub import ModelCard

pytest.importorskip("ctranslate2")

from transformer_mt.companions.exchange.export.export import export
from transformer_mt.companions.exchange.export.proof import _few
from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2
from transformer_mt.config.load import dump_config, load_config
from transformer_mt.run_folder import RunFolder

TRAIN = (
    "data.train=[{toy: train, size: 1500, name: toys, license: CC0-1.0}, "
    "{source: /srv/me/a.en, target: /srv/me/a.de}, {hub: wmt/wmt14, config: de-en, split: train}]"
)


@pytest.fixture
def run(tiny_run, tmp_path):
    """A run of three corpora, scored on a file."""
    folder = tmp_path / "run"
    shutil.copytree(tiny_run, folder)
    config = load_config(folder / "config.yaml", [TRAIN])
    (folder / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    names = ["toys", "/srv/me/a.en + /srv/me/a.de", "wmt/wmt14 de-en train"]
    counts = {"read": 1500, "duplicate": 20, "kept": 1480}
    corpora = [{"name": name, "counts": counts, "uses_per_epoch": 1.0} for name in names]
    (folder / "data.json").write_text(json.dumps(corpora), encoding="utf-8")
    scores = [{"name": "BLEU", "value": 12.345, "signature": "nrefs:1|case:mixed"}]
    scored = {"corpus": "/srv/me/my.tsv", "sentences": 30, "search": "beam 5", "scores": scores}
    scored["weights"] = RunFolder(folder).weights_digest()
    shutil.rmtree(folder / "evaluation", ignore_errors=True)
    (folder / "evaluation").mkdir()
    (folder / "evaluation" / "test-0.scores.json").write_text(json.dumps(scored), encoding="utf-8")
    return folder


def exported(run, out, license=None):
    export(RunFolder(run), out, ToCTranslate2(), None, license)
    return ModelCard.load(out / "README.md"), json.loads((out / "metadata.json").read_text(encoding="utf-8"))


def test_the_hub_reads_the_header(run, tmp_path):
    card, _ = exported(run, tmp_path / "my-model", "cc-by-4.0")
    assert card.data.language == ["en", "de"] and card.data.license == "cc-by-4.0"
    assert card.data.pipeline_tag == "translation" and card.data.library_name == "ctranslate2"
    assert card.data.datasets == ["wmt/wmt14"]
    (result,) = card.data.eval_results
    assert (result.dataset_name, result.metric_type, result.metric_value) == ("own test set 1", "bleu", 12.35)


def test_the_card_says_what_the_run_knows(run, tmp_path):
    card, facts = exported(run, tmp_path / "my-model")
    text = " ".join(card.content.split())  # columns are as wide as they must be
    for said in (
        "# tiny: en to de",
        "translate my-model < in.txt",
        "at most 64 tokens",
        "| own test set 1 | 30 | beam 5 | 12.35 |",
        "- BLEU: `nrefs:1|case:mixed`",
        "| toys | CC0-1.0 | 1,500 |",
        "| own corpus 2 | not stated |",
        "| updates | 24 of 24 (",
        "of 40 probe sentences translated identically",
    ):
        assert said in text, said
    assert facts["training"][0]["license"] == "CC0-1.0"
    assert facts["proof"]["identical"] + facts["proof"]["ties"] == 40


def test_each_score_stands_under_its_own_metric(run, tmp_path):
    """Test sets may be scored by different metrics, after a change of the config."""
    first = run / "evaluation" / "test-0.scores.json"
    facts = json.loads(first.read_text(encoding="utf-8"))
    more = [
        {"name": name, "value": value, "signature": "x"} for name, value in (("TER", 50.0), ("BLEU", 7.0))
    ]
    first.with_name("test-1.scores.json").write_text(json.dumps({**facts, "scores": more}), encoding="utf-8")
    text = exported(run, tmp_path / "out")[0].content
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if "| beam 5" in line]
    assert [row[4:-1] for row in rows] == [["12.35", ""], ["7.00", "50.00"]]


def test_scores_that_flatter_are_not_the_models(run, tmp_path):
    """The hub shows a number alone: sentences that were trained on, and another search, are not for it."""
    first = run / "evaluation" / "test-0.scores.json"
    facts = json.loads(first.read_text(encoding="utf-8"))
    wide = {"search": "beam 5, length_penalty 3.0", "decode": {"length_penalty": 3.0}}
    for name, change in (("seen", {"seen": "91.0 %"}), ("wide", wide), ("public", {"seen": "?"})):
        changed = {**facts, **change, "corpus": name}
        first.with_name(f"{name}.scores.json").write_text(json.dumps(changed), encoding="utf-8")
    card, _ = exported(run, tmp_path / "out")
    assert [result.dataset_name for result in card.data.eval_results] == ["public", "own test set 1"]
    text = " ".join(card.content.split())
    assert "| seen | 30 | 91.0 % | beam 5 | 12.35 |" in text and "length_penalty" not in text


def test_scores_are_in_the_card_of_an_export_with_another_search(run, tmp_path):
    """CTranslate2 always ends a search early; the scores are of the run's own search."""
    config = load_config(run / "config.yaml", ["decode.stop_early=false"])
    (run / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    file = run / "evaluation" / "test-0.scores.json"
    facts = {**json.loads(file.read_text(encoding="utf-8")), "decode": config.decode.model_dump()}
    file.write_text(json.dumps(facts), encoding="utf-8")
    assert len(exported(run, tmp_path / "out")[1]["scores"]) == 1


def test_scores_of_an_ensemble_are_not_those_of_the_model(run, tmp_path):
    scores = run / "evaluation" / "test-0.scores.json"
    facts = json.loads(scores.read_text(encoding="utf-8"))
    scores.write_text(json.dumps({**facts, "weights": None}), encoding="utf-8")
    card, facts = exported(run, tmp_path / "out")
    assert "scores" not in facts and "12.35" not in card.content


def test_nothing_of_this_machine_is_in_the_card_nor_what_nobody_said(run, tmp_path):
    card, facts = exported(run, tmp_path / "my-model")
    for name in ("/srv", "a.en", "my.tsv"):
        assert name not in card.content and name not in json.dumps(facts)
    assert card.data.license is None and "license" not in facts
    (run / "data.json").unlink()
    shutil.rmtree(run / "evaluation")
    (run / "metrics.jsonl").unlink()
    card, facts = exported(run, tmp_path / "other")
    assert not {"scores", "training"} & set(facts) and card.data.eval_results is None
    for heading in ("## Scores", "## Training"):
        assert heading not in card.content


def test_the_folders_of_a_parent_are_left_out(run, tmp_path):
    file = run / "config.yaml"
    parent = {"encoder": "/srv/secret/bert"}
    values = {**yaml.safe_load(file.read_text(encoding="utf-8")), "init_from": parent}
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    card, _ = exported(run, tmp_path / "out")
    assert "secret" not in card.content and "fine-tuned from" in card.content


def test_of_thousands_of_directions_a_few_are_named():
    assert _few([f"a to b{i}" for i in range(9_900)]).endswith("a to b11 and 9,888 other directions")


def test_a_public_model_it_was_adapted_from_is_named_with_its_licence(run, tmp_path):
    public = {"model": "Helsinki-NLP/opus-mt-en-de", "revision": "abc", "license": "cc-by-4.0"}
    (run / "parent.json").write_text(json.dumps({"folder": "x", "imported": public}), encoding="utf-8")
    exported(run, tmp_path / "out")
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.license == "cc-by-4.0" and card.data.base_model == "Helsinki-NLP/opus-mt-en-de"
    assert "It was adapted from Helsinki-NLP/opus-mt-en-de, revision abc." in card.text


def test_folders_of_this_machine_are_named_nowhere(run, tmp_path):
    """Folders may not be there, seen from the one that it is exported in."""
    config = load_config(run / "config.yaml", [f"init_from={tmp_path / 'secret' / 'base'}"])
    (run / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    corpora = json.loads((run / "data.json").read_text(encoding="utf-8"))
    corpora[1]["name"] = "data/a.en + data/a.de"
    (run / "data.json").write_text(json.dumps(corpora), encoding="utf-8")
    public = {"model": "models/opus-mt-en-de", "revision": None, "license": None}
    (run / "parent.json").write_text(json.dumps({"folder": "x", "imported": public}), encoding="utf-8")
    card, facts = exported(run, tmp_path / "out")
    assert card.data.base_model is None and "It was adapted from opus-mt-en-de." in card.text
    assert "own corpus 2" in card.text and "a.en" not in card.text and "| fine-tuned from" in card.text
    assert not any(name in card.text + json.dumps(facts) for name in ("secret", "data/a", "models/"))
