"""Several validation sets, metrics other than BLEU, several references: what chooses the model."""

import json
import random
from contextlib import closing

import pytest
import yaml

from tests.conftest import TINY
from tests.helpers.companions import needs
from transformer_mt.config import load_config
from transformer_mt.corpora.held_out import EvaluationSet, read_set, rows_of
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.evaluation.set_evaluation import SystemRecord
from transformer_mt.files import read_objects
from transformer_mt.preparation import prepare
from transformer_mt.run.validation import publish
from transformer_mt.run_folder import RunFolder, origin_of
from transformer_mt.training import open_run, train

SHORT = {"max_updates": 12, "validate_every": 6, "average_checkpoints": 1}
SETS = [{"toy": "valid", "size": 20, "name": "small"}, {"toy": "test", "size": 30, "name": "large"}]


@pytest.fixture
def run(write_config, tmp_path, monkeypatch):

    def run(valid=SETS, words=(), **sections):
        path = write_config(data={"valid": valid}, train=SHORT, **sections)
        folder = tmp_path / "run"
        train(load_config(path, list(words)), folder)
        return folder, [e for e in read_objects(folder / "metrics.jsonl") if e["event"] == "valid"]

    return run


def test_the_mean_of_the_sets_decides_and_each_is_recorded(run):
    folder, entries = run()
    for entry in entries:
        small, large = entry["sets"]
        assert (small["name"], large["name"]) == ("small", "large")
        assert entry["loss"] == pytest.approx((small["loss"] + large["loss"]) / 2)
        for whole, one, other in zip(entry["scores"], small["scores"], large["scores"]):
            assert whole["value"] == pytest.approx((one["value"] + other["value"]) / 2)
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "small BLEU" in report and "large BLEU" in report


def test_a_named_set_decides_alone(run):
    _, entries = run(words=["train.monitor=chrF", "train.monitor_set=large"])
    for entry in entries:
        assert entry["loss"] == pytest.approx(entry["sets"][1]["loss"], abs=1e-6)
        assert entry["scores"] == entry["sets"][1]["scores"]
    assert [score["name"] for score in entries[0]["scores"]] == ["chrF", "BLEU"]


def test_the_best_by_an_error_rate_is_the_lowest(run):
    folder, entries = run(words=["train.monitor=WER", "train.max_updates=24"])
    best = [entry["scores"][0] for entry in entries if entry["is_best"]]
    assert best[0]["name"] == "WER" and [b["value"] for b in best] == sorted(
        (b["value"] for b in best), reverse=True
    )
    lowest = min(entry["scores"][0]["value"] for entry in entries)
    assert best[-1]["value"] == lowest < entries[0]["scores"][0]["value"]


def test_metrics_of_validations_are_those_of_the_config(run):
    _, entries = run(
        valid=SETS[0], words=["evaluate.metrics=[chrf++, exact match, TER]", "train.monitor=loss"]
    )
    assert [score["name"] for score in entries[0]["scores"]] == ["chrF++", "exact match"]
    assert "sets" not in entries[0]


def test_a_set_that_is_not_there_cannot_decide(run):
    with pytest.raises(
        InputError, match=r"monitor_set must be mean or one of the validation sets \(small, large\)"
    ):
        run(words=["train.monitor_set=smal"])


def test_the_mean_loss_is_that_of_all_sets(run):
    """Plain text has no score, but a loss."""
    text = {"toy": "valid", "size": 20, "name": "text", "language": "de", "objective": "denoise"}
    both = [
        {"toy": "train", "size": 300},
        {"toy": "train", "size": 300, "language": "de", "objective": "denoise"},
    ]
    _, entries = run(
        valid=[SETS[0], text], words=["train.monitor=loss", f"data.train={json.dumps(both)}", "data.test=[]"]
    )
    for entry in entries:
        assert entry["loss"] == pytest.approx(sum(one["loss"] for one in entry["sets"]) / 2)


def test_a_set_without_a_score_cannot_decide(write_config, tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabel\n" + "good\t1\nbad\t0\n" * 30, encoding="utf-8")
    labelled = {"file": str(tmp_path / "a.tsv"), "objective": "classification", "name": "labelled"}
    text = {"file": str(tmp_path / "a.tsv"), "objective": "masked_lm", "language": "text", "name": "text"}
    data = {"source_lang": "text", "target_lang": "label", "labels": ["0", "1"], "test": []}
    path = write_config(
        data={**data, "train": [labelled, text], "valid": [labelled, text]},
        model={"kind": "encoder"},
        train={"monitor": "exact match", "monitor_set": "text"},
    )
    with pytest.raises(
        InputError, match="monitor must be loss, but is exact match: the deciding .* has no translations"
    ):
        train(load_config(path), tmp_path / "run")


def pairs(tmp_path, name, rows):
    path = tmp_path / name
    path.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    return str(path)


def test_pairs_of_one_source_are_one_sentence(write_config, tmp_path):
    file = pairs(tmp_path, "many.tsv", [("en", "de"), ("a", "x"), ("b", "y"), ("a", "z"), ("b", " ")])
    several = {"file": file, "several_references": True}
    config = load_config(write_config(data={"valid": several, "test": [several]}))
    expected = [("a", ("x", "z")), ("b", ("y",))]  # an empty one says nothing
    assert list(read_set(config.data.test[0], config.data.languages, None, "test")) == expected
    (valid,) = prepare(config).valid
    assert valid.sentences == expected
    assert len(valid.pairs) == 3  # all references count for the loss


def test_a_file_for_each_reference(write_config, tmp_path, tiny_run, cli):
    for name, lines in (
        ("src", ["The dog sleeps.", "The dog sleeps."]),
        ("a", ["x", "y"]),
        ("b", ["z", "w"]),
    ):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = {"source": str(tmp_path / "src"), "target": [str(tmp_path / "a"), str(tmp_path / "b")]}
    config = load_config(write_config(data={"test": [files]}))
    found = list(read_set(config.data.test[0], config.data.languages, None, "test"))
    assert found == [("The dog sleeps.", ("x", "z")), ("The dog sleeps.", ("y", "w"))]
    a, b = files["target"]
    words = "--source", files["source"], "--reference", a, "--reference", b
    status, out, _ = cli("evaluate", tiny_run, *words)
    assert status == 0 and "nrefs:2" in out
    row = json.loads((tiny_run / "evaluation" / "0-src.jsonl").read_text(encoding="utf-8").split("\n")[0])
    assert row["references"] == ["x", "z"] and "reference" not in row
    (tmp_path / "b").write_text("z\n", encoding="utf-8")
    with pytest.raises(
        InputError, match=r"same number of lines, but .*src has 2 and .*a has 2 and .*b has 1"
    ):
        list(read_set(config.data.test[0], config.data.languages, None, "test"))


@pytest.mark.parametrize(
    "data, message",
    [
        ({"valid": []}, "data.valid must be a set or a list of sets, but is an empty list"),
        ({"valid": [{"toy": "valid", "name": "a"}, {"toy": "test", "name": "a"}]}, "differ, but are a, a"),
        ({"valid": [{"from_train": {}}, {"from_train": {}}]}, "data.valid must have at most one from_train"),
        ({"train": {"toy": "train", "several_references": True}}, "must not have several references"),
        ({"train": {"source": "a", "target": ["b", "c"]}}, "data.train must not have several references"),
        ({"test": [{"source": "a", "target": []}]}, "target must be a file, or for a test set a list of"),
    ],
)  # fmt: skip
def test_wrong_sets_are_refused(write_config, data, message):
    with pytest.raises(InputError, match=message):
        load_config(write_config(data=data))


def test_old_names_are_still_read(write_config):
    config = load_config(write_config(train={"monitor": "bleu"}))
    assert config.train.monitor == "BLEU"


def test_a_validation_allows_the_length_that_translations_may_have(run):
    folder, entries = run(words=["decode.max_length=2"])
    longest = max(map(len, Tokenizer.load(folder).all_pieces_tgt))
    assert all(len(got) <= 2 * longest for entry in entries for _, _, got in entry["samples"])


def test_what_is_translated_is_a_sample_of_the_whole_set(run, tmp_path):
    """The first ones would be those of one corpus, or the shortest."""
    for side in ("en", "de"):
        text = "".join(f"The {'dog' if n < 30 else 'cat'} {n} sleeps.\n" for n in range(60))
        (tmp_path / f"v.{side}").write_text(text, encoding="utf-8")
    valid = {"source": str(tmp_path / "v.en"), "target": str(tmp_path / "v.de")}
    folder, entries = run(valid, ["train.validate_sentences=20"])
    assert [src.split()[2] for src, _, _ in entries[-1]["samples"]] == ["0", "18", "39"]


# No sentence that a model, or one it is made of, was trained on is scored without a mark.


WORDS = {"dog": "Hund", "cat": "Kater", "bird": "Vogel", "sees": "sieht", "eats": "isst", "red": "rot"}


def pair(number):
    """A sentence with its number, and its translation."""
    rng = random.Random(number)
    src = [rng.choice(list(WORDS)) for _ in range(4)]
    return f"{' '.join(src)} {number}.", f"{' '.join(WORDS[word] for word in src)} {number}."


def number_of(text):
    return int(text.strip(".").split()[-1])


def write_pairs(path, numbers, source="{0}"):
    rows = [{"en": source.format(pair(n)[0]), "de": pair(n)[1]} for n in numbers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"file": str(path)}


class Chain:
    """Trainings one after the other, each made of earlier ones; their weights stay those they begin with."""

    def __init__(self, folder, seed):
        self.folder, self.rng = folder, random.Random(seed)
        self.runs = []
        self.trained = []
        """The numbers of the sentences that each run, or a run it is made of, was trained on."""

    def numbers(self):
        first = self.rng.randrange(120)
        return range(first, first + self.rng.randrange(60, 90))

    def corpora(self, name):
        """Training corpora, and the numbers that the models have seen which wrote a side of them."""
        corpora, known = [write_pairs(self.folder / f"{name}.jsonl", self.numbers())], set()
        if self.rng.random() < 0.5:
            file = self.folder / f"{name}-synthetic.jsonl"
            corpora.append({**write_pairs(file, self.numbers(), "machine {0}"), "synthetic": True})
            if self.runs:
                maker = self.rng.randrange(len(self.runs))
                from transformer_mt.companions.lab.translated import record_origin

                record_origin(origin_of(file), {"folders": [self.runs[maker].path.name]})
                known = self.trained[maker]
        self.rng.shuffle(corpora)
        return corpora, known

    def train(self):
        name = f"run{len(self.runs)}"
        corpora, known = self.corpora(name)
        held_out = {"from_train": {"share": 0.2}}
        test = write_pairs(self.folder / f"{name}-test.jsonl", self.numbers()[:20])
        data = {
            "train": corpora,
            "valid": write_pairs(self.folder / f"{name}-valid.jsonl", range(1000, 1010)),
            "test": [self.rng.choice([test, held_out])],
        }
        sections = {**TINY, "name": name, "data": {**TINY["data"], **data}}
        if self.runs and self.rng.random() < 0.6:
            parent = self.rng.randrange(len(self.runs))
            sections["init_from"] = str(self.runs[parent].path)
            del sections["tokenizer"], sections["model"]
            known = known | self.trained[parent]
        path, run = self.folder / f"{name}.yaml", RunFolder(self.folder / name)
        path.write_text(yaml.safe_dump(sections), encoding="utf-8")
        try:
            with closing(open_run(load_config(path), run)) as opened:
                publish(opened, opened.weights(), None)
                tokenizer, rows = opened.data.tokenizer, opened.data.train
                texts = [tokenizer.decode_tgt(rows.tgt(i).tolist()) for i in range(len(rows))]
        except InputError as error:
            assert known and "must hold out a pair that is new to the models" in str(error)
            return
        numbers = set(map(number_of, texts))
        if data["test"] == [held_out]:
            scored = {number_of(src) for src, _ in rows_of(run.path / "held_out.test.jsonl")}
            assert not scored & (numbers | known), (
                "held out, but trained on by the run or by one it is made of"
            )
        self.runs.append(run)
        self.trained.append(known | numbers)


def check_chain(folder, seed, length=4):
    chain = Chain(folder, seed)
    for _ in range(length):
        chain.train()
    for run, trained in zip(chain.runs, chain.trained):
        record = SystemRecord([run])
        for number in range(210):
            src, tgt = pair(number)
            test = EvaluationSet("test", "a set", [(src, (tgt,))])
            assert record.share(test).count == (number in trained), (run, number)


@pytest.mark.parametrize("seed", [2, 3])
@needs("lab")
def test_what_an_ancestor_was_trained_on_is_marked(tmp_path, seed):
    check_chain(tmp_path, seed)


@pytest.mark.slow
@needs("lab")
def test_what_an_ancestor_was_trained_on_is_marked_in_60_chains(tmp_path):
    for seed in range(5, 65):
        folder = tmp_path / str(seed)
        folder.mkdir()
        check_chain(folder, seed)
