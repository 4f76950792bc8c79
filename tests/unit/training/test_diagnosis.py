"""The diagnosis of a report, on the recorded curves of six trainings that went as their names say.

All but `converged` (the toy language) are of Multi30k, two layers of width 96; `too_high` is Adam at 0.1,
`diverged` Muon at 0.3, `too_low` Muon at 0.0002, `overfitting` 3,000 pairs without dropout.
"""

import math

import pytest

from tests.conftest import ROOT
from transformer_mt.config import load_config
from transformer_mt.files import read_objects
from transformer_mt.training.reporting.diagnosis import diagnosis

SAYS = {
    "improving": ("The model still improves: ", "Raise train.max_updates (500) and run the same command"),
    "overfitting": (
        "The model overfits: since update 140 the validation loss rose by 26%",
        "more data, a higher",
    ),
    "too_low": (
        "falls slowly, so the learning rate is too low",
        "Try three times train.learning_rate (0.0002)",
    ),
    "too_high": (
        "falls no more, so the learning rate is too high",
        "Try a third of train.learning_rate (0.1)",
    ),
    "diverged": (
        "The training diverged: its loss rose from 5.10 to 7.35.",
        "a third of train.learning_rate (0.3)",
    ),
    "converged": ("The training has converged: ", "A larger model or more data may bring more"),
}
SETTINGS = {
    "improving": ["train.max_updates=500", "train.schedule=inverse_sqrt"],
    "too_low": ["train.learning_rate=0.0002"],
    "too_high": ["train.learning_rate=0.1"],
    "diverged": ["train.learning_rate=0.3"],
}


def curves(name):
    entries = list(read_objects(ROOT / "tests" / "curves" / f"{name}.jsonl"))
    return [*entries, {"event": "end", "step": entries[-1]["step"]}]


def config(*settings):
    return load_config(ROOT / "configs" / "demo.yaml", ["train.warmup=60", *settings])


@pytest.mark.parametrize("name", SAYS)
def test_each_kind_of_training_is_recognised(name):
    said = diagnosis(config(*SETTINGS.get(name, [])), curves(name))
    assert all(part in said for part in SAYS[name]), said
    assert said.count(". ") == 1 and said.endswith(".")  # two sentences


def test_a_schedule_that_ends_is_not_just_continued():
    said = diagnosis(config("train.schedule=cosine"), curves("improving"))
    assert "start over, as the schedule ends with it" in said


def test_a_loss_that_is_no_number_has_diverged():
    entries = curves("improving")
    last = max(i for i, entry in enumerate(entries) if entry["event"] == "train")
    entries[last]["ppl"] = math.nan
    assert diagnosis(config(), entries).startswith("The training diverged")


def test_too_little_to_say_is_said():
    entries = curves("improving")
    few = [e for e in entries if e["event"] != "valid" or e["step"] <= 100]
    assert "too few validations (2)" in diagnosis(config(), few)
    short = [e for e in curves("too_low") if e["step"] <= 60 or e["event"] == "end"]
    assert "while the learning rate still rose" in diagnosis(config(), short)
    assert diagnosis(config(), []) == ""
    assert diagnosis(config(), curves("improving")[:-1]) == ""  # not ended


def test_what_ended_the_training_is_raised():
    entries = curves("improving")
    last = [entry for entry in entries if entry["event"] == "valid"][-3:]
    stale = [{**entry, "is_best": False} if entry in last else entry for entry in entries]
    patience = ["train.max_updates=9000", "train.patience=3", "train.schedule=cosine"]
    assert "Raise train.patience (3) and run the same command to resume." in diagnosis(
        config(*patience), stale
    )
    # The last logged update is before the end: that is no sign of patience.
    unlogged = [*entries[:-1], {"event": "end", "step": 510}]
    limits = ["train.max_updates=510", "train.patience=3"]
    assert "Raise train.max_updates (510) and" in diagnosis(config(*limits), unlogged)
    epochs = ["train.max_epochs=5", "train.max_updates=9000", "train.patience=3"]
    assert "Raise train.max_epochs (5), and train.max_updates if it is less" in diagnosis(
        config(*epochs), entries
    )


def test_patience_that_ends_too_early_is_named():
    few = [e for e in curves("too_low") if e["event"] == "train"]
    valid = [
        {"event": "valid", "step": step, "loss": 6.5 - step / 500, "is_best": step == 10,
         "stale": step // 10 - 1, "scores": [{"name": "BLEU", "value": 0.0}]}
        for step in range(10, 120, 10)
    ]  # fmt: skip
    entries = [*few, *valid, {"event": "end", "step": 110}]
    told = diagnosis(config("train.patience=10", "train.max_updates=2000"), entries)
    assert told == (
        "train.patience (10) ended the training at update 110 of 2,000, but the validation loss still fell, "
        "from "
        "6.48 to 6.28. Raise it and run the same command to resume."
    )
    flat = [{**entry, "loss": 6.5} for entry in valid]
    told = diagnosis(config("train.patience=10", "train.max_updates=2000"), [*few, *flat, entries[-1]])
    assert "patience" not in told
    converged = curves("converged")
    best = {id(entry) for entry in converged if entry["event"] == "valid" and entry["step"] <= 100}
    stale = [{**entry, "is_best": id(entry) in best, "stale": 9} for entry in converged]
    told = diagnosis(config("train.patience=9", "train.max_updates=9000"), stale)
    assert told.startswith(
        "The training has converged: train.patience (9) ended it, and in its last third"
    ), told


def test_fine_tuning_that_does_not_help_is_said():
    entries = curves("improving")
    parent = {**next(entry for entry in entries if entry["event"] == "valid"), "step": 0, "is_best": True}
    worse = [{**entry, "is_best": False} if entry["event"] == "valid" else entry for entry in entries]
    child = config("init_from=runs/parent")
    assert diagnosis(child, [parent, *worse]).startswith("Fine-tuning did not help: the parent model has")
    average = {"event": "average", "step": 500, "chosen": True}
    assert diagnosis(child, [parent, *worse, average]).startswith("The model still improves")


def test_only_pieces_that_can_be_sampled_are_advised():
    assert "tokenizer.bpe_dropout" in diagnosis(config(), curves("overfitting"))
    assert "tokenizer.bpe_dropout" not in diagnosis(config("tokenizer.kind=unigram"), curves("overfitting"))


def test_odd_curves_do_not_stop_a_training():
    entries = curves("improving")
    lost = [{**e, "is_best": False} if e["event"] == "valid" else e for e in entries]
    assert diagnosis(config(), lost).startswith("The model still improves")
    no_loss = [{**e, "loss": math.nan} if e["event"] == "valid" else e for e in entries]
    assert diagnosis(config(), no_loss) == ""


def test_a_report_ends_with_the_diagnosis(tiny_run):
    report = (tiny_run / "report.md").read_text(encoding="utf-8")
    assert report.rstrip().split("\n## ")[-1].startswith("Diagnosis\n\n")
