"""A sweep's plan, its runner and its table, without training."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time

import pytest
import yaml

from tests.conftest import ROOT, TINY
from tests.helpers.faults import cores
from transformer_mt.companions.lab import sweep_jobs as jobs
from transformer_mt.companions.lab.sweep_jobs import Runner, is_done, load_sweep
from transformer_mt.companions.lab.sweep_table import write_table
from transformer_mt.config.load import dump_config, given_settings, load_config
from transformer_mt.config.resolve import Known
from transformer_mt.corpora.seen_sentences import SeenSentences, Sentences, keys_of
from transformer_mt.data.vocabulary.given_tokenizer import settle
from transformer_mt.errors import InputError
from transformer_mt.files import lock_folder
from transformer_mt.run_folder import RunFolder

SWEEP = {
    "base": "tiny.yaml",
    "settings": {"train.max_updates": 8},
    "seeds": [1, 2],
    "variants": {"scaled dot": None, "additive": {"model.attention.score": "additive"}},
}


@pytest.fixture
def write_sweep(tmp_path):
    def write(**changes):
        (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY), encoding="utf-8")
        path = tmp_path / "which.yaml"
        path.write_text(yaml.safe_dump({**SWEEP, **changes}, sort_keys=False), encoding="utf-8")
        return path

    return write


def test_a_sweep_that_ships_is_found_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_sweep("attention_comparison", []).jobs


def test_every_variant_meets_every_seed_and_the_command_line_wins(write_sweep, tmp_path):
    sweep = load_sweep(write_sweep(), ["train.warmup=3", "train.max_updates=9"], tmp_path / "out")
    found = [(job.variant, job.seed) for job in sweep.jobs]
    assert found == [("scaled dot", 1), ("additive", 1), ("scaled dot", 2), ("additive", 2)]
    for job in sweep.jobs:
        train = job.config.train
        assert job.config.seed == job.seed and train.max_updates == 9 and train.warmup == 3
        assert job.folder == tmp_path / "out" / job.variant.replace(" ", "_") / f"seed-{job.seed}"
    assert [job.config.model.attention.score for job in sweep.jobs] == ["scaled_dot", "additive"] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variants": {"a": {"model.attention.score": "additiv"}}},
         "which.yaml: variant a: `model.attention.score` must be"),
        ({"variants": {"a b": None, "a_b": None}}, "differ in more than spaces, underscores and capitals"),
        ({"variants": {"a, b": None}}, "the name of a variant must be letters, digits"),
        ({"variants": {"_a": None}}, "a letter or digit first, but is '_a'"),
        ({"variants": {"a": {"seed": 3}}}, "a sweep sets seed itself; use `seeds`"),
        ({"variants": {}}, "variants must name at least one, but there are none"),
        ({"seeds": [1, 1]}, "seeds must differ, but are [1, 1]"),
        ({"seed": [1]}, "`seed` is not a key; did you mean `seeds`?"),
        ({"base": "tinny.yaml"}, "no such config file; did you mean"),
        ({"variants": {"a": None, "b": {"data.test.0.size": 7}}}, "variant b: `data.test` must be as in a, "
         "so that scores can be compared, which is [{toy: test, size: 30}], but is [{toy: test, size: 7}]"),
        ({"variants": {"a": None, "b": {"evaluate.lowercase": True}}}, "b: `evaluate` must be as in a"),
        ({"settings": {"train.max_updates": {1, 2}}}, "`train.max_updates`: the value must be YAML"),
        ({"settings": {"data.valid": {"from_train": {"share": 0.1}}},
          "variants": {"a": None, "b": {"data.train": {"toy": "train", "size": 100}}}},
         "variant b: `data.train` must be as in a, so that scores can be"),  # what is held out is of it
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_any_training(write_sweep, changes, message):
    with pytest.raises(InputError) as error:
        load_sweep(write_sweep(**changes), [])
    assert message in str(error.value)
    if "model.attention.score" in message:
        assert len(str(error.value).split("\n")) == 1  # once, not for each seed


def test_what_is_wrong_in_all_variants_is_said_once(write_sweep):
    for words, message in (
        (["train.max_update=5"], "`train.max_update` is not a key; did you mean `train.max_updates`?"),
        (["seed=7"], "a sweep sets seed itself; see its `seeds` and `variants`"),
    ):
        with pytest.raises(InputError) as error:
            load_sweep(write_sweep(), words)
        assert str(error.value).endswith(f"which.yaml: {message}") and len(str(error.value).split("\n")) == 1


def test_any_value_reaches_the_config(write_sweep):
    settings = {"data.max_length_ratio": float("inf"), "decode.banned": ["😀", "no"]}
    config = load_sweep(write_sweep(settings=settings), []).jobs[0].config
    assert config.data.max_length_ratio == float("inf") and config.decode.banned == ["😀", "no"]


def finish(job, words=("a b c d e f",) * 20, bleu=30.0):
    """The folder a finished and scored job leaves."""
    folder = job.folder
    (folder / "evaluation").mkdir(parents=True)
    (folder / "job.yaml").write_text(given_settings(job.config), encoding="utf-8")
    (folder / "config.yaml").write_text(dump_config(job.config), encoding="utf-8")
    score = {"name": "BLEU", "value": bleu, "signature": "sig"}
    train = {"event": "train", "step": 8, "learning_rate": 0.1}
    entries = [
        {"event": "start", "parameters": 1234, "commit": "abc", "processor": "a", "threads": 2,
         "precision": "float32", "torch": "2"},
        *({**train, "tokens_per_second": speed} for speed in (500, 510, 3)),
        {"event": "valid", "step": 8, "seconds": 2.0, "tokens": 1000, "loss": 1.0, "scores": [score],
         "is_best": True},
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8"
    )
    for name in ("model.safetensors", "finished.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    rows = [{"source": "a", "reference": "a b c d e f", "translation": each} for each in words]
    place = folder / "evaluation" / "test-0.jsonl"
    place.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    facts = {"scores": [{**score, "value": bleu + 1}], "decode": job.config.decode.model_dump()}
    facts["weights"] = RunFolder(folder).weights_digest()
    (folder / "evaluation" / "test-0.scores.json").write_text(json.dumps(facts), encoding="utf-8")


def test_a_key_that_is_given_is_another_setting_than_one_that_is_left_out(write_sweep, tmp_path):
    """What is left out may be a parent's."""
    (job, *_) = load_sweep(write_sweep(), [], tmp_path / "out").jobs
    default = job.config.model.dropout
    (given, *_) = load_sweep(write_sweep(), [f"model.dropout={default}"], tmp_path / "out").jobs
    file = tmp_path / "job.yaml"
    file.write_text(given_settings(job.config), encoding="utf-8")
    assert given.config == job.config
    assert jobs._is_same_training(file, job.config)
    assert not jobs._is_same_training(file, given.config)


def test_a_job_is_done_when_this_very_config_was_trained_and_scored(write_sweep, tmp_path):
    (job, *_) = load_sweep(write_sweep(), [], tmp_path / "out").jobs
    assert not is_done(job)
    finish(job)
    assert is_done(job)
    (other, *_) = load_sweep(write_sweep(), ["train.warmup=3"], tmp_path / "out").jobs
    assert not is_done(other)
    file = job.folder / "evaluation" / "test-0.scores.json"
    facts = json.loads(file.read_text(encoding="utf-8"))
    own = RunFolder(job.folder).weights_digest()
    longer = load_config(job.folder / "config.yaml", ["train.max_updates=9"])
    (job.folder / "config.yaml").write_text(dump_config(longer), encoding="utf-8")
    assert not is_done(job)  # somebody has trained it further
    (job.folder / "config.yaml").write_text(dump_config(job.config), encoding="utf-8")
    assert is_done(job)
    greedy = {**facts, "weights": own, "decode": {**facts["decode"], "beam": 1}}  # evaluate --beam 1
    file.write_text(json.dumps(greedy), encoding="utf-8")
    assert not is_done(job)
    file.write_text(json.dumps({**facts, "weights": own}), encoding="utf-8")
    (job.folder / "model.safetensors").write_text("{ }", encoding="utf-8")
    assert not is_done(job)


def test_other_settings_are_trained_anew_and_another_search_is_only_scored_anew(
    write_sweep, tmp_path, commands
):
    ran = []

    def run(*overrides):
        ran.clear()
        sweep = load_sweep(write_sweep(variants={"a": None}, seeds=[1]), list(overrides), tmp_path / "out")
        Runner(sweep, [None]).run(lambda: None)
        ran.extend(words[0] for words, _ in commands())
        return sweep.jobs[0].folder

    (job,) = load_sweep(write_sweep(variants={"a": None}, seeds=[1]), [], tmp_path / "out").jobs
    finish(job)
    folder = run()
    assert ran == []
    run("decode.beam=2")
    assert ran == ["train", "evaluate"] and (folder / "model.safetensors").exists()
    # An interruption here must not leave the old ones
    assert not list(folder.glob("evaluation/*.scores.json"))
    run("decode.beam=2", "train.learning_rate=0.5")
    assert ran == ["train", "evaluate"] and not (folder / "model.safetensors").exists()
    (aside,) = folder.parent.glob("seed-1.old-*")
    assert (aside / "model.safetensors").exists()


def test_the_table_has_means_deviations_and_significance(write_sweep, tmp_path):
    sweep = load_sweep(write_sweep(), [], tmp_path / "out")
    assert write_table(sweep) is None
    worse = ("a b c d e f", "a b x d e f") * 10
    for job, bleu in zip(sweep.jobs, (30.0, 20.0, 32.0)):
        finish(job, ("a b c d e f",) * 20 if job.variant == "scaled dot" else worse, bleu)
        known = keys_of(["a"] if job.variant == "additive" else [])
        SeenSentences(Sentences(trained=known)).write(RunFolder(job.folder).seen_file)
    lines = [" ".join(line.split()) for line in write_table(sweep).split("\n")]
    assert lines[0] == "| variant | parameters | tokens/s | validation BLEU | seeds |"
    assert lines[2] == "| scaled dot | 1,234 | 500 | 31.00 ± 1.41 | 2 |"
    assert lines[3] == "| additive | 1,234 | 500 | 20.00 | 1 |"
    assert "| system | seen | BLEU | p | chrF | p |" in lines and "**toy test, 20 sentences**" in lines
    (tested,) = (
        line for line in lines if line.startswith("| scaled dot | 0 % | 100.00 ± 0.00 [100.0, 100.0] |")
    )
    (tested,) = (line for line in lines if line.startswith("| additive | 100.0 % | ") and "[" in line)
    assert tested.count("| 0.001 |") == 2
    assert "- 1 of 4 trainings are not done: additive (seed 2)" in lines
    assert "- search: beam 5" in lines
    assert "- trained: commit abc, a, 2 threads, float32, torch 2" in lines
    facts = json.loads((sweep.folder / "table.json").read_text(encoding="utf-8"))
    assert facts[0]["test"][0]["values"] == [pytest.approx(100)] * 2 and facts[0]["test"][0]["p"] is None
    assert (sweep.folder / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_tells_searches_machines_and_metrics_apart(write_sweep, tmp_path):
    variants = {"a": None, "b": {"decode.beam": 7, "train.monitor": "chrF"}}
    sweep = load_sweep(write_sweep(seeds=[1], variants=variants), [], tmp_path / "out")
    for job in sweep.jobs:
        finish(job)
    journal = sweep.jobs[1].folder / "metrics.jsonl"
    replace_in(journal, '"threads": 2', '"threads": 1')
    replace_in(journal, "BLEU", "chrF")
    text = write_table(sweep)
    assert "- search: beam 5 (a); beam 7 (b)\n" in text
    assert "a, 2 threads, float32, torch 2 (a); commit abc, a, 1 threads, float32, torch 2 (b)\n" in text
    rows = [[cell.strip() for cell in line.split("|")] for line in text.split("\n")]
    assert [row[1:5] for row in rows if row[1:2] in (["a"], ["b"])][:2] == [
        ["a", "1,234", "500", "30.00"],
        ["b", "1,234", "500", ""],  # validations by another metric are not compared
    ]


def test_a_sweep_of_texts_shows_what_can_be_compared(write_sweep, tmp_path):
    """Perplexities are of pieces: those of another vocabulary say nothing, bits per character do."""
    text = {"language": "en", "objective": "causal_lm"}
    settings = {f"data.{name}": {"toy": name, **text} for name in ("train", "valid")}
    settings |= {"data.test": [{"toy": "test", **text}], "model.kind": "decoder"}
    variants = {"a": None, "b": {"tokenizer.vocab_size": 300}}
    sweep = load_sweep(write_sweep(settings=settings, variants=variants, seeds=[1, 2]), [], tmp_path / "out")
    for job, bits in zip(sweep.jobs, (2.5, 1.75, 2.5, 1.5)):
        finish(job)
        scores = [{"name": "bits per character", "value": bits, "signature": job.variant, "digits": 4}]
        facts = {"corpus": "toy test", "scores": scores, "seen": "3.0 %" if job.variant == "b" else ""}
        facts["weights"] = RunFolder(job.folder).weights_digest()
        RunFolder(job.folder).scores_file("test-0").write_text(json.dumps(facts), encoding="utf-8")
        replace_in(job.folder / "metrics.jsonl", "BLEU", "perplexity")
    lines = [" ".join(line.split()) for line in write_table(sweep).split("\n")]
    assert "- validation: `sig`; perplexities of different vocabularies cannot be compared" in lines
    assert "| variant | seen | bits per character |" in lines and "**toy test**" in lines
    assert "| a | 0 % | 2.5000 ± 0.0000 |" in lines and "| b | 3.0 % | 1.6250 ± 0.1768 |" in lines
    assert "- bits per character: a (a); b (b)" in lines


def test_each_test_set_has_the_tokenizer_of_its_language(write_sweep, tmp_path):
    tests = "[{toy: test, size: 20}, {toy: valid, size: 20, target_lang: zh}]"
    sweep = load_sweep(write_sweep(seeds=[1], variants={"a": None}), [f"data.test={tests}"], tmp_path / "out")
    finish(sweep.jobs[0])
    for name in ("jsonl", "scores.json"):
        shutil.copyfile(*(sweep.jobs[0].folder / "evaluation" / f"test-{i}.{name}" for i in (0, 1)))
    assert re.search(r"BLEU: .*tok:13a.*tok:zh", write_table(sweep), re.DOTALL)


@pytest.mark.usefixtures("commands")
def test_a_folder_in_which_somebody_trains_is_not_moved(write_sweep, tmp_path):
    (job,) = load_sweep(write_sweep(variants={"a": None}, seeds=[1]), [], tmp_path / "out").jobs
    finish(job)
    other = load_sweep(
        write_sweep(variants={"a": None}, seeds=[1]), ["train.learning_rate=0.5"], tmp_path / "out"
    )
    with lock_folder(job.folder):
        (failure,) = Runner(other, [None]).run(lambda: None)
    assert failure.startswith("a, seed 1: ") and "another training runs here" in failure
    assert (job.folder / "model.safetensors").exists()


@pytest.mark.usefixtures("commands")
def test_a_config_of_another_version_counts_as_trained_otherwise(write_sweep, tmp_path):
    sweep = load_sweep(write_sweep(variants={"a": None}, seeds=[1]), [], tmp_path / "out")
    finish(sweep.jobs[0])
    (sweep.jobs[0].folder / "job.yaml").write_text("model: {no_such_key: 1}\n", encoding="utf-8")
    assert Runner(sweep, [None]).run(lambda: None) == []
    assert len(list(sweep.jobs[0].folder.parent.glob("seed-1.old-*"))) == 1


def test_what_a_parent_or_a_vocabulary_decides_is_left_to_them(write_sweep, tiny_run, tmp_path):
    """A job's file holds what the sweep says: all keys would contradict them, or differ from the sweep's."""
    path = write_sweep(variants={"a": None}, seeds=[1])
    shared = {"data": TINY["data"], "train": TINY["train"]}
    for number, origin in enumerate(
        ({"init_from": str(tiny_run)}, {"tokenizer": {"file": str(tiny_run / "tokenizer.model")}})
    ):
        (tmp_path / "tiny.yaml").write_text(yaml.safe_dump({**shared, **origin}), encoding="utf-8")
        (job,) = load_sweep(path, [], tmp_path / f"out-{number}").jobs
        Runner(load_sweep(path, [], tmp_path / f"out-{number}"), [None])._make_ready(job)
        again = load_config(job.folder / "job.yaml")
        assert again == job.config and again.model.model_fields_set == job.config.model.model_fields_set
        parent = RunFolder(tiny_run) if number == 0 else None
        known = Known(parent=parent.config() if parent else None)
        _, settled, tokenizer = settle(again, known, parent=parent.tokenizer() if parent else None)
        assert tokenizer is not None and settled.tokenizer.vocab_size == tokenizer.src.vocab_size()


@pytest.mark.usefixtures("commands")
def test_a_table_that_cannot_be_written_stops_no_training(write_sweep, tmp_path, said):
    def full():
        raise OSError(28, "No space left on device")

    assert Runner(load_sweep(write_sweep(), [], tmp_path / "out"), [None]).run(full) == []
    assert said.count("no table yet: [Errno 28] No space left on device") == 4


# Stands in for Python: keeps the command that it should run, and fails for a variant named bad.
FAKE = """#!{python}
import json, os, sys
words = sys.argv[3:]
with open({seen!r}, "a") as seen:
    seen.write(json.dumps([words, os.environ.get("OMP_NUM_THREADS")]) + "\\n")
print("loss 1", "bad luck" if "bad/seed" in " ".join(words) else "fine", sep="\\n", file=sys.stderr)
sys.exit(1 if "bad/seed" in " ".join(words) else 0)
"""


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Gives the commands, [(words, threads)], that a sweep ran since the last call; none does anything."""
    fake, seen = tmp_path / "python", tmp_path / "seen.jsonl"
    fake.write_text(FAKE.format(python=sys.executable, seen=str(seen)), encoding="utf-8")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    seen.touch()
    monkeypatch.setattr(sys, "executable", str(fake))

    def since_the_last_call():
        calls = [json.loads(line) for line in seen.read_text(encoding="utf-8").splitlines()]
        seen.write_text("", encoding="utf-8")
        return calls

    return since_the_last_call


def test_one_failure_does_not_stop_the_others_and_devices_are_shared(
    write_sweep, tmp_path, monkeypatch, commands
):
    cores(monkeypatch, 6)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    sweep = load_sweep(write_sweep(variants={"good": None, "bad": None}), [], tmp_path / "out")
    done = []
    failures = Runner(sweep, ["cuda:0", "cuda:1"]).run(lambda: done.append(1))
    assert sorted(failures) == [
        f"bad, seed {seed}: bad luck (all of it is in {sweep.folder / 'bad' / f'seed-{seed}' / 'log.txt'})"
        for seed in (1, 2)
    ]
    assert len(done) == 4
    calls = commands()
    trained = [words for words, _ in calls if words[0] == "train"]
    scored = [words for words, _ in calls if words[0] == "evaluate"]
    assert len(trained) == 4 and len(scored) == 2
    devices = {next(w for w in words if "train.device" in w) for words in trained}
    assert devices <= {"train.device=cuda:0", "train.device=cuda:1"}
    assert {threads for _, threads in calls} == {"3"}


@pytest.fixture
def on_files(tmp_path, monkeypatch):
    """A sweep over text files, of which one job was trained and scored."""
    monkeypatch.chdir(tmp_path)
    for name in ("train", "valid", "test"):
        for side in ("en", "de"):
            lines = [f"{name} {side} number {n}\n" for n in range(9)]
            (tmp_path / f"{name}.{side}").write_text("".join(lines), encoding="utf-8")
    sets = {name: {"source": f"{name}.en", "target": f"{name}.de"} for name in ("train", "valid", "test")}
    data = {**TINY["data"], **sets, "test": [sets["test"]]}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump({**TINY, "data": data}), encoding="utf-8")
    plan = {"base": "tiny.yaml", "seeds": [1], "variants": {"plain": None}}
    (tmp_path / "which.yaml").write_text(yaml.safe_dump(plan), encoding="utf-8")

    def job():
        return load_sweep(tmp_path / "which.yaml", []).jobs[0]

    run = RunFolder(job().folder)
    Runner(load_sweep(tmp_path / "which.yaml", []), [None])._make_ready(job())
    run.evaluation.mkdir()
    row = {"source": "test en number %d", "reference": "test de number %d", "translation": "x"}
    rows = "".join(json.dumps(row) % (n, n) + "\n" for n in range(9))
    run.translations_file("test-0").write_text(rows, encoding="utf-8")
    run.scores_file("test-0").write_text("{}", encoding="utf-8")
    return job


def replace_in(path, old, new):
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


@pytest.mark.parametrize(
    "file, old, new, told",
    [
        ("train.en", "number 3", "number 33", "was trained with other training data; that is now"),
        ("valid.de", "number 3", "number 33", "was trained with other validation data; that is now"),
        ("test.de", "number 3", "number 33", "was scored with other test data; it is scored again"),
        # A training source is a test sentence now, and left out of the training.
        ("test.en", "test en number 3", "train en number 3", "was trained with other test data; that is now"),
    ],
)
def test_other_data_are_named_and_trained_or_scored_again(on_files, tmp_path, file, old, new, told, said):
    def ready():
        said.clear()
        Runner(load_sweep(tmp_path / "which.yaml", []), [None])._make_ready(on_files())
        return said

    (tmp_path / file).touch()  # is the same
    assert ready() == []
    replace_in(tmp_path / file, old, new)
    (line,) = ready()
    assert line.startswith("plain, seed 1: ") and told in line
    assert not RunFolder(on_files().folder).scores_files()
    assert ready() == []


def test_a_reference_that_is_a_target_of_synthetic_pairs_is_left_out_of_the_training(
    on_files, tmp_path, said
):
    plan = yaml.safe_load((tmp_path / "which.yaml").read_text())
    made = {"source": "train.en", "target": "train.de", "synthetic": True}
    (tmp_path / "which.yaml").write_text(yaml.safe_dump({**plan, "settings": {"data.train": made}}))
    runner = Runner(load_sweep(tmp_path / "which.yaml", []), [None])
    file = RunFolder(on_files().folder).translations_file("test-0")
    rows = file.read_text(encoding="utf-8")
    runner._make_ready(on_files())
    file.parent.mkdir()
    file.write_text(rows.replace("test en number 1", "one line\u2028in JSON"), encoding="utf-8")
    replace_in(tmp_path / "test.de", "test de number 3", "train de number 3")
    said.clear()
    runner._make_ready(on_files())
    assert "was trained with other test data" in said[0]


def test_a_glossary_that_was_changed_is_another_training(on_files, tmp_path, said):
    (tmp_path / "terms.tsv").write_text("dog\tHund\n", encoding="utf-8")
    plan = yaml.safe_load((tmp_path / "which.yaml").read_text())
    settings = {"data.changes": [{"terms": {"file": str(tmp_path / "terms.tsv")}}]}
    (tmp_path / "which.yaml").write_text(yaml.safe_dump({**plan, "settings": settings}), encoding="utf-8")
    runner = Runner(load_sweep(tmp_path / "which.yaml", []), [None])
    runner._make_ready(on_files())
    replace_in(tmp_path / "terms.tsv", "Hund", "Köter")
    said.clear()
    runner._make_ready(on_files())
    assert "was trained with other other files" in said[0]


# `transformer-mt sweep` itself: interrupted, resumed, finished, and asked again.


@pytest.mark.long
def test_a_sweep_goes_on_where_ctrl_c_stopped_it(tmp_path, cli):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY), encoding="utf-8")
    sweep = {
        "base": "tiny.yaml",
        "settings": {f"train.{key}": 60 for key in ("validate_every", "save_every")}
        | {"train.max_updates": 120, "decode.beam": 1},
        "seeds": [1],
        "variants": {"scaled dot": None, "luong": {"model.kind": "recurrent", "train.max_updates": 10}},
    }
    (tmp_path / "which.yaml").write_text(yaml.safe_dump(sweep, sort_keys=False), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "transformer_mt", "sweep", "which.yaml", "--jobs", "2"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    log = tmp_path / "runs" / "which" / "scaled_dot" / "seed-1" / "log.txt"
    deadline = time.monotonic() + 120
    while not (log.exists() and "update 4/" in log.read_text(encoding="utf-8")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and b"Traceback" not in err and out == b""
    assert err.decode().endswith("stopped; run the same command to resume\n")
    assert "and saved; run the same command" in log.read_text(encoding="utf-8")

    result = cli("sweep", "which.yaml", "--devices", "cpu,cpu", cwd=tmp_path)
    assert result.status == 0, result.err
    assert "resuming from" in log.read_text(encoding="utf-8")
    lines = result.out.split("\n")
    assert lines[2].startswith("| scaled dot |") and lines[3].startswith("| luong ")
    folder = tmp_path / "runs" / "which"
    assert (folder / "table.md").read_text(encoding="utf-8").startswith(result.out)

    again = cli("sweep", "which.yaml", cwd=tmp_path)
    assert again.out == result.out and again.err == ""  # nothing was left to do
