"""`transformer-mt compare`: models and files of translations side by side."""

import gzip
import json
import re
import shutil
from contextlib import closing

import pytest
import sacrebleu

from transformer_mt.config import load_config
from transformer_mt.corpora import toy
from transformer_mt.run.validation import publish
from transformer_mt.run_folder import RunFolder
from transformer_mt.training import open_run

SOURCES = ["The dog sleeps.", "A cat sees 3 birds.", "The old teacher sings in the garden."]
SOURCES += ["A child laughs."]
REFERENCES = ["Der Hund schläft.", "Eine Katze sieht 3 Vögel.", "Der alte Lehrer singt im Garten."]
REFERENCES += ["Ein Kind lacht."]
GOOD = [*REFERENCES[:3], "Das Kind lacht."]
BAD = ["Der Hund <b>schläft</b>.", "Eine Katze sieht Vögel.", "Der Lehrer singt.", "Ein Kind lacht."]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, lines in (("src", SOURCES), ("ref", REFERENCES), ("good", GOOD), ("bad", BAD)):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["--source", "src.txt", "--reference", "ref.txt", "--target-lang", "de"]


def test_files_are_compared_in_a_table(files, cli):
    status, out, _ = cli("compare", "bad.txt", "new=good.txt", *files, "--metrics", "bleu,chrf")
    lines = [" ".join(line.split()) for line in out.split("\n")]
    assert status == 0 and lines[0] == "src.txt + ref.txt, 4 sentences"
    assert lines[1] == "system BLEU p chrF p"
    bleu = sacrebleu.corpus_bleu(GOOD, [REFERENCES]).score
    assert lines[4].startswith(f"new {bleu:.2f} [")
    assert lines[3].startswith("bad ") and lines[3].count("[") == 2
    assert any(line.startswith("- BLEU: nrefs:1|case:mixed|eff:no|tok:13a") for line in lines)
    assert "- p: p-value against bad, paired bootstrap resampling, 1,000 samples" in lines
    assert "fewer than 20 sentences say little about significance: src.txt + ref.txt" in out


def test_the_table_is_written_for_papers_and_programs(files, cli):
    words = ("compare", "bad.txt", "a_b=good.txt", "same=bad.txt", *files, "--metrics", "BLEU")
    latex = cli(*words, "--format", "latex")[1]
    assert r"\begin{tabular}{lrr}" in latex and r"a\_b & " in latex and "system & BLEU & $p$" in latex
    assert latex.count(r"\\") == 5 and "% BLEU: nrefs:1" in latex
    markdown = cli(*words, "--format", "markdown")[1]
    assert "**src.txt + ref.txt, 4 sentences**" in markdown and "| system   | BLEU " in markdown
    facts = json.loads(cli(*words, "--format", "json")[1])
    cells = {cell["system"]: cell for cell in facts["cells"]}
    assert cells["bad"]["p"] is None and cells["same"]["p"] == 1.0
    assert cells["a_b"]["low"] < cells["a_b"]["value"] < cells["a_b"]["high"]
    assert facts["signatures"][0]["signature"].startswith("nrefs:1|")
    assert "(Holm)" in markdown


def test_a_name_given_again_is_another_seed(files, cli):
    words = ("compare", "a=bad.txt", "a=good.txt", "b=good.txt", "b=bad.txt", *files, "--metrics", "chrF")
    out = cli(*words)[1]
    assert " ± " in out and " †" in out and "†: better with some seeds, worse with others" in out
    assert "the deviation over the seeds by Student's t" in out
    status, _, err = cli(*words, "--significance", "randomisation")
    assert status == 2 and "randomisation must compare single runs" in err
    out = cli(*words[:2], "b=good.txt", *files, "--significance", "randomisation")[1]
    assert "paired approximate randomisation" in out


def test_several_references_and_test_sets(files, tmp_path, cli):
    (tmp_path / "ref2.txt").write_text("\n".join(BAD) + "\n", encoding="utf-8")
    words = ("--source", "src.txt", "--reference", "ref.txt", "--reference", "ref2.txt")
    out = cli("compare", "bad.txt", *words, "--target-lang", "de")[1]
    assert "100.00 [" in out and "nrefs:2" in out and "src.txt + ref.txt + ref2.txt" in out
    words = (*["--source", "src.txt"] * 2, "--reference", "ref.txt", "--reference", "ref2.txt")
    out = cli("compare", "x=bad.txt,good.txt", *words, "--target-lang", "de")[1]
    assert "src.txt + ref.txt, 4 sentences" in out and "src.txt + ref2.txt, 4 sentences" in out
    status, _, err = cli("compare", "bad.txt", *words, "--target-lang", "de")
    assert status == 2 and "bad: must have one file per test set, separated by commas, but has 1 for 2" in err


def test_a_model_keeps_its_translations(tiny_run, tmp_path, monkeypatch, cli):
    run = shutil.copytree(tiny_run, tmp_path / "tiny")
    shutil.rmtree(run / "evaluation", ignore_errors=True)
    status, first, said = cli("compare", run)
    assert status == 0 and "toy test, 30 sentences" in first and "translating toy test" in said
    assert first.split("\n")[1].split() == ["system", "BLEU", "chrF", "TER"]  # one system: no p
    assert len((run / "evaluation" / "compare-test-0.jsonl").read_text(encoding="utf-8").splitlines()) == 30
    status, again, said = cli("compare", run)
    assert again == first and "translates" not in said
    # Its file of translations is the same system, and brings its test set
    kept = run / "evaluation" / "compare-test-0"
    out = cli("compare", kept.with_suffix(".jsonl"), "--target-lang", "de")[1]
    assert out.split("\n")[3] == first.split("\n")[3]
    scores = kept.with_suffix(".scores.json")
    facts = json.loads(scores.read_text(encoding="utf-8"))
    for change in ({"weights": None}, {"decode": {}}, {"tag": "<x>"}):
        scores.write_text(json.dumps({**facts, **change}), encoding="utf-8")
        assert "translating toy test" in cli("compare", run)[2]
    scores.write_text("{", encoding="utf-8")  # damaged
    assert "translating toy test" in cli("compare", run)[2]


def test_sentences_that_a_system_was_trained_on_are_marked(tiny_run, tmp_path, write_config, cli):
    """Systems that hold out other shares of one corpus, and a file that one of them wrote."""
    for share in (0.1, 0.02):
        data = {"train": {"toy": "train", "size": 300}, "test": [{"from_train": {"share": share}}]}
        config = load_config(write_config(data=data))
        with closing(open_run(config, RunFolder(tmp_path / f"run{share}"))) as run:
            publish(run, run.weights(), None)
    runs = [tmp_path / "run0.1", tmp_path / "run0.02"]
    status, out, err = cli("compare", *runs, "--html", tmp_path / "x.html")
    assert status == 0, err
    rows = {line.split()[0]: line.split()[1:3] for line in out.split("\n") if line.startswith("run")}
    assert rows["run0.1"] == ["0", "%"] and float(rows["run0.02"][0]) > 60
    assert "- seen: the share of sentences that the system, or a model it derives from, was trained" in out
    assert f"<td>{rows['run0.02'][0]} %</td>" in (tmp_path / "x.html").read_text(encoding="utf-8")
    file = tmp_path / "run0.02" / "evaluation" / "compare-test-0.jsonl"
    facts = json.loads(cli("compare", tmp_path / "run0.1", file, "--format", "json").out)
    assert [system["seen"]["test-0"]["count"] > 15 for system in facts["systems"]] == [False, True]
    assert " ? " in cli("compare", tmp_path / "run0.1", without_record(tiny_run, tmp_path)).out


def without_record(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "older")
    (copy / "seen.safetensors").unlink()
    return copy


def test_the_search_of_each_system_is_named(tiny_run, files, tmp_path, cli):
    for name, decode in (("plain", ""), ("other", "decode: {beam: 2, no_repeat_ngram: 3}\n")):
        config = shutil.copytree(tiny_run, tmp_path / name) / "config.yaml"
        shutil.rmtree(tmp_path / name / "evaluation", ignore_errors=True)
        config.write_text(re.sub(r"(?m)^decode:.*\n(  .*\n)*", decode, config.read_text(encoding="utf-8")))
    words = ("compare", tmp_path / "plain", tmp_path / "other", "good.txt", *files[:4], "--metrics", "chrF")
    searches = "- search: beam 5 (plain); beam 2, no_repeat_ngram 3 (other); not known (good)\n"
    assert searches in cli(*words).out
    again = cli(*words)
    assert searches in again.out and "translates" not in again.err
    (file,) = (tmp_path / "other" / "evaluation").glob("compare-*.jsonl")
    facts = json.loads(cli("compare", tmp_path / "plain", file, *files[:4], "--format", "json").out)
    assert facts["systems"][1]["search"] == "beam 2, no_repeat_ngram 3"


def test_sentences_that_chose_the_checkpoint_are_marked(tiny_run, files, tmp_path, cli):
    pairs = list(toy.generate("valid", 12))
    for name, lines in zip(("src", "ref"), zip(*pairs)):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = cli("evaluate", tiny_run, *files[:4]).out
    assert "  12 of 12 sentences seen before, in training, validation" in out


def test_sentences_that_stand_in_a_memory_are_counted(tiny_run, tmp_path, cli):
    run = shutil.copytree(tiny_run, tmp_path / "tiny")
    pairs = [f"{src}\t{tgt}\n" for src, tgt in list(toy.generate("test", 30))[:12]]
    (tmp_path / "memory.tsv").write_text("en\tde\n" + "".join(pairs), encoding="utf-8")
    out = cli("evaluate", run, "--memory", tmp_path / "memory.tsv", "--json").out
    assert json.loads(out)["seen"]["count"] == 12
    assert "seen" not in cli("evaluate", run).out


def test_what_an_ensemble_translated_is_not_the_models_own(tiny_run, untrained_run, tmp_path, cli):
    run = shutil.copytree(tiny_run, tmp_path / "tiny")
    shutil.rmtree(run / "evaluation", ignore_errors=True)
    assert cli("evaluate", run, "--ensemble", tiny_run)[0] == 0
    assert (run / "evaluation" / "other-test-0.jsonl").exists()
    assert "## Test\n" not in (run / "report.md").read_text(encoding="utf-8")
    assert "translating toy test" in cli("compare", run)[2]
    assert cli("evaluate", run)[0] == 0
    assert "translates" not in cli("compare", run)[2]
    # The translations of `compare` and `evaluate` are one row.
    assert (run / "report.md").read_text(encoding="utf-8").count("| toy test") == 1


def test_translations_that_another_process_has_replaced_are_not_used(tiny_run, tmp_path, cli):
    run = shutil.copytree(tiny_run, tmp_path / "tiny")
    shutil.rmtree(run / "evaluation", ignore_errors=True)
    first = cli("compare", run)[1]
    kept = run / "evaluation" / "compare-test-0.jsonl"
    rows = [{**json.loads(row), "translation": "x"} for row in kept.read_text(encoding="utf-8").splitlines()]
    kept.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert cli("compare", run)[1] == first


def test_names_of_packed_and_json_files_are_understood(files, tmp_path, cli):
    lines = (tmp_path / "good.txt").read_text(encoding="utf-8").splitlines()
    rows = "".join(json.dumps({"translation": line}) + "\n" for line in lines)
    (tmp_path / "json.json").write_text(rows, encoding="utf-8")
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    out = cli("compare", "good.txt", "json.json", "packed.jsonl.gz", *files)[1]
    scores = [line.split()[1] for line in out.split("\n")[3:6]]
    assert len(set(scores)) == 1


def test_systems_of_several_files_are_different_systems(files, tmp_path, cli):
    """They were called by their first file, and compared as seeds of one system."""
    twice = [*files, *files]
    out = cli("compare", "bad.txt,good.txt", "bad.txt,bad.txt", *twice)[1]
    assert "bad.txt,good.txt" in out and "bad.txt,bad.txt" in out and "±" not in out


def test_runs_and_files_stand_in_one_table(tiny_run, tmp_path, cli):
    perfect = tmp_path / "perfect.txt"
    perfect.write_text("".join(tgt + "\n" for _, tgt in toy.generate("test", 30)), encoding="utf-8")
    out = cli("compare", tiny_run, perfect, "--metrics", "exact match")[1]
    assert out.split("\n")[4].split() == ["perfect", "100.00", "[100.0,", "100.0]", "0.001"]


@pytest.mark.parametrize(
    "words, message",
    [
        (["x=bad.txt", "x=bad.txt"], "each system must be given once, but bad.txt is given twice"),
        (["half.jsonl"], "half.jsonl:1: must be text, but has half of a surrogate pair; write it again"),
        (["bad.txt", "--external", "a=no/program"], "no/program: the program of a is not installed"),
        (["bad.txt", "--external", "BLEU=python"], "--external must not have the name of a metric"),
        (["nothing.txt"], "nothing.txt: no such file or folder; a system is [NAME=]PATH"),
        (["bad.txt", "--metrics", "BLUE"], "--metrics must be of BLEU, chrF,"),
        (["bad.txt", "--source", "src.txt", "--source", "src.txt"], "each --source must have"),
        (["bad.txt", "--external", "COMET"], "--external must be NAME=COMMAND, but is COMET"),
        (["bad.txt", *["--external", "a=python"] * 2], "--external must have a different name"),
        (["short.txt"], "must have a translation for each of the 4 sentences of src.txt + ref.txt, but ha"),
        (["other.jsonl"], "other.jsonl:1: must be the translation of "),
        (["broken.jsonl"], "broken.jsonl:1: must be a JSON object with a translation, but is '{'"),
        (["bad.txt", "--html", "no/such/page.html"], "page.html: must be in a folder that exists"),
    ],
)  # fmt: skip
def test_mistakes_are_said_in_one_line(files, tmp_path, cli, words, message):
    (tmp_path / "short.txt").write_text("Der Hund schläft.\n", encoding="utf-8")
    rows = [{"source": "Another.", "translation": "Anders."}] * 4
    (tmp_path / "other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "half.jsonl").write_text(r'{"translation": "\ud83d"}' + "\n", encoding="utf-8")
    (tmp_path / "broken.jsonl").write_text("{\n" * 4, encoding="utf-8")
    status, _, err = cli("compare", *words, *files)
    assert status in (1, 2) and message in err and err.count("\n") == 1


def test_a_path_may_have_an_equals_sign(files, tmp_path, cli):
    shutil.copy("bad.txt", "lr=0.1.txt")
    status, out, _ = cli("compare", "lr=0.1.txt", "x=lr=0.1.txt", *files, "--metrics", "chrF")
    assert status == 0 and [line.split()[0] for line in out.split("\n")[3:5]] == ["lr=0.1", "x"]


def test_files_of_one_name_are_different_test_sets(tmp_path, cli):
    for folder, translation in (("a", "Der Hund schläft."), ("b", "Falsch.")):
        row = {"source": "The dog sleeps.", "reference": "Der Hund schläft.", "translation": translation}
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "out.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    paths = f"{tmp_path}/a/out.jsonl,{tmp_path}/b/out.jsonl"
    words = ("--target-lang", "de", "--metrics", "exact match", "--format", "json")
    facts = json.loads(cli("compare", paths, *words)[1])
    assert [cell["value"] for cell in facts["cells"]] == [100.0, 0.0]
    assert len({test["name"] for test in facts["tests"]}) == 2


def test_without_a_test_set_or_a_language_it_says_what_to_give(files, cli):
    status, _, err = cli("compare", "bad.txt", "--target-lang", "de")
    assert status == 2 and "names one; give --source FILE --reference FILE" in err
    status, _, err = cli("compare", "bad.txt", *files[:4])
    assert status == 2 and "give --target-lang LANG" in err


def test_an_external_metric_is_a_column(files, tmp_path, cli):
    (tmp_path / "metric.py").write_text(
        "import sys\nfor line in sys.stdin: print(len(line) % 7)\n", encoding="utf-8"
    )
    out = cli("compare", "bad.txt", "good.txt", *files, "--external", "mine=python metric.py")[1]
    assert "mine" in out.split("\n")[1] and "- mine: command:python metric.py" in out
    # Such a metric may have values from 0 to 1.
    assert re.search(r" \d\.\d{4} \[\d\.\d{3}, \d\.\d{3}\]", out)
