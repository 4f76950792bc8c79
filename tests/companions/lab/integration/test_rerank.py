"""`transformer-mt rerank`: a metric chooses among candidates."""

import json
import math
import sys
from collections import Counter

import pytest

from transformer_mt.companions.lab.reranking import choices, read_candidates
from transformer_mt.config import EvaluateConfig
from transformer_mt.corpora import toy
from transformer_mt.evaluation.metrics import build_metrics

# A language model of the words that the test counts in training text: the mean log-probability of a word, and
# with references the share of words in common.
METRIC = """
import itertools, json, math, sys
model, block = json.load(open(sys.argv[1])), []
for line in itertools.chain(sys.stdin, [""]):
    if line.strip():
        block.append(json.loads(line))
        continue
    for row in block:
        words = row["translation"].split()
        if row["references"]:
            (other,) = row["references"]
            print(len(set(words) & set(other.split())) / max(1, len(set(words) | set(other.split()))))
        else:
            print(sum(model.get(word, -20.0) for word in words) / max(1, len(words)))
    block = []
    sys.stdout.flush()
"""


@pytest.fixture(scope="module")
def metric(tmp_path_factory):
    folder = tmp_path_factory.mktemp("metric")
    counts = Counter(word for _, target in toy.generate("train", 500) for word in target.split())
    total = sum(counts.values())
    model = {word: math.log(count / total) for word, count in counts.items()}
    (folder / "model.json").write_text(json.dumps(model), encoding="utf-8")
    (folder / "metric.py").write_text(METRIC, encoding="utf-8")
    return f"LM={sys.executable} '{folder / 'metric.py'}' '{folder / 'model.json'}'"


def candidates(path, rows):
    lines = [
        {"source": source, "translation": texts[0], "n_best": [{"translation": text} for text in texts]}
        for source, texts in rows
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


ROWS = [
    ("The dog sleeps.", ["Der Zzz schläft.", "Der Hund schläft.", "Das Hund schläft."]),
    ("A cat.", ["Eine Katze."]),
]


def test_a_language_model_chooses_the_candidate_it_knows(tmp_path, cli, metric):
    file = candidates(tmp_path / "c.jsonl", ROWS)
    status, out, err = cli("rerank", file, "--external", metric)
    assert status == 0 and out.split("\n")[1:] == ["Eine Katze.", ""]
    assert out.split("\n")[0] in ("Der Hund schläft.", "Das Hund schläft.")
    status, out, err = cli("rerank", file, "--external", metric, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows[1] == {"source": "A cat.", "translation": "Eine Katze.", "score": None}
    assert rows[0]["score"] > -20 / 3


def test_minimum_bayes_risk_chooses_the_candidate_most_like_the_others(tmp_path, cli, metric):
    file = candidates(tmp_path / "c.jsonl", [("a b c", ["a b x", "a b c", "b c y", "z"])])
    status, out, _ = cli("rerank", file, "--external", metric, "--mbr", "--json")
    # shared / all words: with "a b x" 2/4, with "b c y" 2/4, with "z" 0
    assert json.loads(out) == {"source": "a b c", "translation": "a b c", "score": pytest.approx(1 / 3)}


def test_the_candidates_of_several_systems_are_one_set(tmp_path, cli, metric):
    first = candidates(tmp_path / "1.jsonl", [("a", ["Zzz."])])
    second = candidates(tmp_path / "2.jsonl", [("a", ["Der Hund", "Zzz."])])
    assert [line.candidates for line in read_candidates([first, second])] == [["Zzz.", "Der Hund"]]
    assert cli("rerank", first, second, "--external", metric)[1] == "Der Hund\n"


def test_the_utility_of_mbr_may_be_any_metric(tmp_path):
    """Against its plain definition, in blocks and with lines of one candidate between others."""
    texts = [f"{word} sieht {number} Vögel." for word in ("Der Hund", "Die Katze") for number in range(3)]
    rows = [("x", texts[: 1 + i % 6]) for i in range(230)]
    (chrf,) = build_metrics(EvaluateConfig(), "de", ["chrF"])
    chosen = list(choices(read_candidates([candidates(tmp_path / "c", rows)]), chrf, by_risk=True))

    def mean(text, others):
        return sum(chrf.score(["x"], [text], [[other]]).value for other in others) / len(others)

    for choice, (_, several) in list(zip(chosen, rows))[:6] + list(zip(chosen, rows))[-6:]:
        if len(several) > 1:
            means = {text: mean(text, [other for other in several if other != text]) for text in several}
            assert choice.score == pytest.approx(max(means.values()))
            assert means[choice.translation] == pytest.approx(choice.score)
        else:
            assert choice == ("x", several[0], None)


def test_files_of_other_texts_are_refused(tmp_path, cli, metric):
    first = candidates(tmp_path / "1.jsonl", [("a", ["x", "y"])])
    second = candidates(tmp_path / "2.jsonl", [("b", ["x", "y"])])
    status, out, err = cli("rerank", first, second, "--external", metric)
    assert status == 2 and "2.jsonl: must have the sources of " in err and not out


@pytest.mark.parametrize(
    "line",
    ['{"translation": "x"}', '{"source": "a", "translation": "x", "n_best": ["y"]}',
     '{"source": "a", "translation": "x", "n_best": [{"translation": 3}]}'],
)  # fmt: skip
def test_lines_that_are_none_of_translate_are_refused(tmp_path, cli, metric, line):
    (tmp_path / "c.jsonl").write_text(line + "\n", encoding="utf-8")
    status, out, err = cli("rerank", tmp_path / "c.jsonl", "--external", metric)
    assert status == 2 and "c.jsonl:1: is not JSON with source and translation" in err


def test_a_file_without_lines_is_not_taken_for_one_that_was_not_read(tmp_path, cli, metric):
    first = candidates(tmp_path / "1.jsonl", [])
    second = candidates(tmp_path / "2.jsonl", [("a", ["x", "y"])])
    status, out, err = cli("rerank", first, second, "--external", metric)
    assert status == 2 and "2.jsonl: must have the sources of" in err
    no_best = '{"source": "a", "translation": "x", "n_best": null}\n'
    (tmp_path / "3.jsonl").write_text(no_best, encoding="utf-8")
    assert cli("rerank", tmp_path / "3.jsonl", "--external", metric)[1] == "x\n"


def test_the_candidates_of_translate_can_be_chosen_among(tiny_run, tmp_path, cli, metric):
    lines = tmp_path / "in.en"
    lines.write_text("The dog sleeps.\n\nA cat sees 3 birds.\n", encoding="utf-8")
    words = ["--json", "--n-best", 4, "-i", lines, "-o", tmp_path / "c.jsonl"]
    assert cli("translate", tiny_run, *words)[0] == 0
    status, out, err = cli("rerank", tmp_path / "c.jsonl", "--external", metric, "--mbr")
    assert status == 0 and len(out.splitlines()) == 3 and out.splitlines()[1] == "", err
