"""No sentence that a model, or one it is made of, was trained on is scored without a mark."""

import json
import random
from contextlib import closing

import pytest
import yaml

from tests.conftest import TINY
from tests.helpers.companions import needs
from transformer_mt.config import load_config
from transformer_mt.corpora.held_out import EvaluationSet, rows_of
from transformer_mt.errors import InputError
from transformer_mt.evaluation.set_evaluation import SystemRecord
from transformer_mt.run.validation import publish
from transformer_mt.run_folder import RunFolder, origin_of
from transformer_mt.training import open_run

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


@pytest.mark.parametrize("seed", range(5))
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
