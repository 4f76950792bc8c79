"""What training does at its turns: early stopping, averaging, broken arithmetic, learning at all."""

import json
import math
import os
import re
import shutil
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from tests.helpers.companions import needs
from tests.helpers.faults import before_each_update, memory_for, results_read_later, validations
from transformer_mt import Translator, train
from transformer_mt.checkpoint import load, metadata, save, save_weights
from transformer_mt.config.load import load_config
from transformer_mt.corpora import toy
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import lock_folder, read_objects
from transformer_mt.ranks import Ranks
from transformer_mt.run.loggers import EnergyMeter
from transformer_mt.run.validation import validate
from transformer_mt.run_folder import RunFolder
from transformer_mt.training import open_run


@pytest.fixture
def little_memory():
    with memory_for(200):
        yield


@pytest.fixture
def run(write_config, tmp_path, monkeypatch):
    """Trains TINY with overrides in this process: (folder, entries of metrics.jsonl)."""
    monkeypatch.chdir(tmp_path)

    def run(*overrides):
        folder = train(load_config(write_config(), overrides))
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").split("\n")
        return folder, [json.loads(line) for line in lines if line]

    return run


def steps(entries, event):
    return [entry["step"] for entry in entries if entry["event"] == event]


def test_training_stops_when_patience_is_out(run, capsys):
    """At a rate of nothing no validation betters the first."""
    folder, entries = run(
        "train.learning_rate=1e-12", "train.validate_every=3", "train.patience=2", "train.max_updates=60"
    )
    assert steps(entries, "valid") == [3, 6, 9]
    assert (folder / "checkpoints/step-00000009").is_dir()
    said = "no new best in 2 validations (train.patience): training ends at update 9 of 60"
    assert said in capsys.readouterr().err
    words = ["train.validate_every=4", "train.patience=0", "train.max_updates=16", "name=b"]
    assert steps(run("train.learning_rate=1e-12", *words)[1], "valid") == [4, 8, 12, 16]


def test_the_report_counts_all_updates_and_compares_the_estimated_time(run):
    """It counted the updates up to the last line of the log."""
    folder, entries = run("train.max_updates=25", "train.validate_every=25")
    (end,) = [entry for entry in entries if entry["event"] == "end"]
    assert 0 < end["estimated"] < 100 * end["seconds"]
    time = f"{end['seconds'] / 60:.1f} min in updates (estimated: {end['estimated'] / 60:.1f})"
    report = (folder / "report.md").read_text()
    assert time in report and "| updates | 25 of 25 (" in " ".join(report.split())


def test_what_is_no_run_is_not_moved_aside(write_config, tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(
        InputError, match="must be a run's folder to be moved aside, but has files and no con"
    ):
        train(load_config(write_config()), folder, fresh=True)
    assert [path.name for path in folder.iterdir() if not path.name.startswith(".")] == ["thesis.txt"]
    with pytest.raises(InputError, match="thesis.txt: must be the run's folder, but is a file"):
        train(load_config(write_config()), folder / "thesis.txt")


@needs("inspection")
def test_a_folder_that_only_an_inspection_wrote_to_is_moved_aside(write_config, tmp_path):

    folder = tmp_path / "inspected"
    folder.mkdir()
    (folder / "inspect.md").write_text("# Inspection")
    config = load_config(write_config(), ["train.max_updates=1", "train.validate_every=1"])
    assert (train(config, folder, fresh=True) / "model.safetensors").exists()


@pytest.mark.skipif(not os.path.isdir("/proc/sys"), reason="needs a folder that takes no file from anyone")
def test_a_folder_that_takes_no_file_is_refused_before_the_data_are_read(write_config, capsys):
    with pytest.raises(InputError, match=r"/proc/sys/x: must be a folder that .*, but /proc/sys is not \("):
        train(load_config(write_config()), "/proc/sys/x")
    assert "reading" not in capsys.readouterr().err


@needs("inspection")
def test_a_new_run_must_have_a_language_and_one_with_another_code_translates(run, tiny_run, tmp_path):
    from transformer_mt.companions.inspection.inspect import inspect

    for split in ("train", "valid"):
        rows = "".join(f"{en}\t{de}\n" for en, de in toy.generate(split, 300))
        (tmp_path / f"{split}.tsv").write_text(f"en\tcz\n{rows}", encoding="utf-8")
    files = ["data.train={file: train.tsv}", "data.valid={file: valid.tsv}"]
    words = ["data.target_lang=cz", *files, "data.test=[]"]
    with pytest.raises(InputError, match="a language's code, but cz is a country's; Czech is cs"):
        run(*words, "train.max_updates=1")
    with pytest.raises(InputError, match="cz is a country's"):
        inspect(load_config("demo", words))
    folder = shutil.copytree(tiny_run, tmp_path / "other")
    values = (
        (folder / "config.yaml").read_text(encoding="utf-8").replace("target_lang: de", "target_lang: cz")
    )
    (folder / "config.yaml").write_text(values, encoding="utf-8")
    assert Translator.load(folder, device="cpu").target_lang == "cz"


@pytest.mark.parametrize("several, splits", [(3, "false"), (1, "true")])
def test_whether_lines_are_split_is_what_the_training_sources_say(run, tmp_path, several, splits):
    """auto: not where a fifth of them has several sentences. The answer is in the run's folder, which needs
    no data then.
    """
    pairs = list(toy.generate("train", 1000))
    rows = [f"{en} {pairs[i - 1][0]}\t{de} {pairs[i - 1][1]}" if i % 10 < several else f"{en}\t{de}"
            for i, (en, de) in enumerate(pairs)]  # fmt: skip
    (tmp_path / "train.tsv").write_text("en\tde\n" + "\n".join(rows) + "\n", encoding="utf-8")
    words = ["data.train={file: train.tsv}", "train.average_checkpoints=1"]
    folder, _ = run(*words, "train.max_updates=2")
    kept = (folder / "config.yaml").read_text(encoding="utf-8")
    assert f"split_sentences: {splits}  #" in kept
    (result,) = Translator.load(folder, device="cpu").translate(["The dog sleeps. A cat sings."])
    assert (len(result.segments) == 2) is (splits == "true")
    run(*words, "train.max_updates=4")  # auto in the YAML is no change
    assert (folder / "config.yaml").read_text(encoding="utf-8") == kept.replace(
        "max_updates: 2", "max_updates: 4"
    )


def test_a_validation_splits_lines_as_translate_does(run, tiny_run, tmp_path):
    line = "The dog sleeps. A cat sings."
    (tmp_path / "valid.tsv").write_text(
        f"en\tde\n{line}\tDer Hund schläft. Eine Katze singt.\n", encoding="utf-8"
    )
    validated = {}
    for split in ("true", "false"):
        words = [f"decode.split_sentences={split}", f"name=split-{split}", "decode.beam=1"]
        words += [f"init_from={tiny_run}", "train.learning_rate=1e-9", "train.max_updates=1"]
        folder, entries = run("data.valid={file: valid.tsv}", *words, "train.average_checkpoints=1")
        ((_, _, validated[split]),) = next(e["samples"] for e in entries if e["event"] == "valid")
        (result,) = Translator.load(folder, device="cpu").translate([line])
        assert validated[split] == result.translation
    assert validated["true"] != validated["false"]


def test_the_loss_can_be_what_is_watched(run):
    _, entries = run("train.monitor=loss", "train.validate_every=6", "train.max_updates=18")
    valid = [entry for entry in entries if entry["event"] == "valid"]
    best = None
    for entry in valid:
        assert entry["is_best"] == (best is None or entry["loss"] < best)
        best = min(best or entry["loss"], entry["loss"])


def test_a_command_can_choose_the_best_checkpoint(write_config, tmp_path, cli):
    """It likes short translations: the first, which says little. The same command has one process."""
    program = tmp_path / "shortness.py"
    program.write_text(
        "import json, sys\nopen(sys.argv[1], 'a').write('started\\n')\n"
        "for line in sys.stdin:\n    if line.strip():\n"
        "        print(-len(json.loads(line)['translation']), flush=True)\n"
    )
    words = "train", write_config(train={"validate_every": 6, "max_updates": 12}), "--out", tmp_path / "run"
    status, _, err = cli(*words, "--monitor", f"shortness={sys.executable} '{program}' '{tmp_path / 'log'}'")
    assert status == 0, err
    assert (tmp_path / "log").read_text() == "started\n"
    valid = [e for e in read_objects(tmp_path / "run/metrics.jsonl") if e["event"] == "valid"]
    values = [entry["scores"][0]["value"] for entry in valid]
    assert {entry["scores"][0]["name"] for entry in valid} == {"shortness"}
    best = [entry["step"] for entry in valid if entry["is_best"]][-1]
    assert values[best // 6 - 1] == max(values)
    assert "monitor: shortness" in (tmp_path / "run/config.yaml").read_text()
    assert cli("translate", tmp_path / "run", "The dog sleeps.")[0] == 0
    status, _, err = cli("train", words[1], "--out", tmp_path / "run")
    assert status == 2 and "`train.monitor` needs the metric shortness, which is not here: command:" in err
    assert "of `train --monitor shortness=COMMAND`" in err
    assert cli("train", words[1], "--monitor", "x")[2].endswith("--monitor must be NAME=COMMAND, but is x\n")


def test_scores_of_another_kind_are_not_compared(run, capfd):
    """Minus a loss is below every BLEU: it would never be a new best, and patience would end the run."""
    run("train.patience=1", "train.max_updates=12")
    folder, entries = run("train.monitor=loss", "train.patience=1", "train.max_updates=24")
    assert "after a change of train.monitor are not comparable" in capfd.readouterr().err
    after = [entry for entry in entries if entry["event"] == "valid" and entry["step"] > 12]
    assert [entry["step"] for entry in after] == [24] and after[0]["is_best"]


def test_a_validation_is_greedy_whatever_search_and_rules_are_wanted(run):
    words = ["decode.search=mbr", "decode.samples=4", "decode.temperature=2.0", "name=sampled"]
    words += ["decode.no_repeat_ngram=1", "decode.min_length=9"]
    same = ("train.max_updates=12", "train.average_checkpoints=1")
    plain, other = (run(*same, *more)[1] for more in ([], words))
    assert [e["samples"] for e in plain if e["event"] == "valid"] == [
        e["samples"] for e in other if e["event"] == "valid"
    ]


def test_the_loss_of_no_pair_cannot_be_watched(run, tmp_path):
    (tmp_path / "long.tsv").write_text("en\tde\n" + "dog " * 300 + "\tHund\n", encoding="utf-8")
    with pytest.raises(
        InputError, match=r"data.valid must have texts of at most data.max_length \(\d+\) tokens for"
    ):
        run("train.monitor=loss", "data.valid={file: long.tsv}")


def test_the_published_model_is_the_best_or_the_better_average(run):
    folder, entries = run("train.average_checkpoints=3")
    average = next(entry for entry in entries if entry["event"] == "average")
    assert average["steps"] == [12, 18, 24]
    kept = load_file(folder / "model.safetensors")
    files = [load_file(path) for path in sorted((folder / "averaging").iterdir())]
    mean = {name: sum(weights[name].double() for weights in files) / 3 for name in kept}
    is_mean = all(torch.allclose(kept[name].double(), mean[name], atol=1e-6) for name in kept)
    best = [e for e in entries if e["event"] == "valid" and e["is_best"]][-1]
    assert max(e["scores"][0]["value"] for e in (average, best)) < 1  # too low to decide: the loss does
    assert average["chosen"] == (average["loss"] < best["loss"]) == is_mean


def test_the_best_checkpoints_can_be_averaged(run):
    _, entries = run("train.average=best", "train.average_checkpoints=2", "train.validate_every=6")
    valid = [entry for entry in entries if entry["event"] == "valid"]
    chosen = [entry["step"] for entry in valid if entry["is_best"]][-1]
    others = [entry for entry in valid if entry["step"] != chosen]
    others.sort(key=lambda entry: (-entry["scores"][0]["value"], entry["loss"]))  # of equal scores the loss
    best = sorted([chosen, others[0]["step"]])
    assert next(entry for entry in entries if entry["event"] == "average")["steps"] == best


def test_a_run_that_goes_on_after_its_end_publishes_what_it_names(run):
    """The first end publishes an average; if the second finds nothing better, the best single one is named
    and is there.
    """
    run()
    folder, entries = run("train.max_updates=30", "train.learning_rate=0.2")
    last, kept = entries[-1]["model"], load_file(folder / "model.safetensors")
    steps = [int(step.replace(",", "")) for step in re.findall(r"\d[\d,]*(?=,|$)", last)]
    files = [folder / f"averaging/step-{step:08d}.safetensors" for step in steps]
    if last.startswith("update"):
        files = [folder / f"checkpoints/step-{steps[0]:08d}/model.safetensors"]
    named = [load_file(file) for file in files]
    mean = {name: sum(weights[name].double() for weights in named) / len(named) for name in kept}
    assert all(torch.allclose(kept[name].double(), mean[name], atol=1e-6) for name in kept)
    assert [entry["event"] for entry in entries].count("end") == 1


def test_a_run_cut_short_before_any_validation_still_ends_with_a_model(run):
    def stop(number, *_):
        if number > 8:
            raise RuntimeError("enough")

    with before_each_update(stop), pytest.raises(RuntimeError, match="enough"):
        run()
    folder, entries = run("train.max_updates=6")
    assert (folder / "model.safetensors").exists() and steps(entries, "valid") == [6]


def test_precision_can_change_on_the_way(run):
    run("train.max_updates=6")
    _, entries = run("train.max_updates=12", "train.precision=fp16")
    assert entries[-1]["event"] == "end" and entries[-1]["step"] == 12


def test_a_second_training_in_the_same_folder_is_refused(run, tmp_path):
    folder, _ = run("train.max_updates=2")
    held = lock_folder(folder)
    with pytest.raises(InputError, match="another training runs here"):
        run("train.max_updates=4")
    with pytest.raises(InputError, match="another training runs here"):
        train(load_config(tmp_path / "tiny.yaml", ["train.max_updates=4"]), fresh=True)
    held.release()


def test_training_can_begin_again_in_the_same_process_after_an_error(run):
    """While the error lives, its traceback holds what the failed training used."""

    def broken(*args):
        raise WorkError("no more paper")

    with validations(broken), pytest.raises(WorkError, match="no more paper") as first:
        run("train.max_updates=12")
    with before_each_update(broken), pytest.raises(WorkError, match="no more paper") as second:
        run("train.max_updates=14")
    for thread in threading.enumerate():
        if thread.name.startswith("batches"):
            thread.join(60)  # it ends after the batch that it makes
            assert not thread.is_alive()
    folder, _ = run("train.max_updates=14")
    assert (folder / "finished.json").exists() and first.traceback and second.traceback


def test_a_worse_end_does_not_take_the_place_of_a_better_average(run, capfd):
    """Once published, the model is only replaced by one that validates at least as well, also when a run goes
    on.
    """
    folder, entries = run()
    score = entries[-2]["scores"][0]["value"]
    file, weights = folder / "model.safetensors", load_file(folder / "model.safetensors")
    facts = metadata(file)
    facts = json.loads(facts["transformer_mt"])
    (name,) = facts["score"]
    assert name == "BLEU of 1000 at equal distances, auto, lowercase False"
    assert facts["score"][name] == pytest.approx(score, abs=1e-3)
    save_weights(file, weights, {"transformer_mt": json.dumps({**facts, "score": {name: 99.0}})})
    kept = file.read_bytes()
    run("train.max_updates=36")
    assert file.read_bytes() == kept
    assert (
        "holds the model of an earlier training in this folder, which scored better" in capfd.readouterr().err
    )
    run("train.max_updates=40", "evaluate.lowercase=true")  # another score: the two do not compare
    assert file.read_bytes() != kept


@pytest.mark.parametrize("loss, chosen", [(9.0, False), (0.1, True)])
def test_an_average_of_equal_score_is_chosen_if_its_loss_is_as_good(run, loss, chosen):
    calls = []

    def tied(validate, *arguments):
        result = validate(*arguments)
        calls.append(result)
        scores = replace(result.deciding, loss=1.0 if len(calls) < 3 else loss)
        samples = [("source", "reference", "of the average" if len(calls) >= 3 else "of the best")]
        return replace(result, deciding=scores, score=1.0, samples=samples)

    with validations(tied):
        folder, entries = run()
    assert [e["chosen"] for e in entries if e["event"] == "average"] == [chosen]
    # The samples are those of the model that is published.
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert ("translation: of the average" in report) == chosen != ("translation: of the best" in report)
    assert f"| average, {'chosen' if chosen else 'not chosen'} " in report


def test_what_train_is_not_made_for_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"must get a Config, as load_config\(path\) returns, but got 'x.y"):
        train("x.yaml")
    with pytest.raises(InputError, match=r"must get the path of a YAML file, but got \{'name': 'x'\}"):
        load_config({"name": "x"})
    with pytest.raises(InputError, match="must be a list of key=value texts, but are one text: 'seed=2'"):
        load_config(tmp_path / "x.yaml", "seed=2")


def test_a_validation_at_the_end_is_saved(run):
    folder, _ = run("train.max_updates=6", "train.validate_every=6", "train.save_every=6")
    state = load(folder / "checkpoints" / "step-00000006").state
    assert state["progress"]["best_step"] == 6
    for name in ("finished.json", "model.safetensors"):
        (folder / name).unlink()
    # As if it had been stopped there before any validation.
    progress = {**state["progress"], "best_step": None, "best_score": None, "scores": []}
    tensors = load(folder / "checkpoints" / "step-00000006").tensors
    save(folder / "checkpoints", 6, tensors, {**state, "progress": progress})
    run("train.max_updates=6", "train.validate_every=12")
    assert load(folder / "checkpoints" / "step-00000006").state["progress"]["best_step"] == 6


def test_weights_damaged_before_they_are_averaged_are_left_out(run, capfd):
    folder, _ = run("train.average_checkpoints=3")
    (folder / "finished.json").unlink()
    damaged = folder / "averaging" / "step-00000018.safetensors"
    damaged.write_bytes(b"cut")
    _, entries = run("train.average_checkpoints=3")
    assert f"{damaged} is damaged" in capfd.readouterr().err.replace("runs/", f"{folder.parent}/")
    assert next(e for e in entries if e["event"] == "average")["steps"] == [12, 24]


def test_a_run_of_another_version_is_told_in_one_line(run):
    folder, _ = run("train.max_updates=6")
    saved = load(folder / "checkpoints" / "step-00000006")
    state = {**saved.state, "config": {**saved.state["config"], "no_such_key": 1}}
    save(folder / "checkpoints", 6, saved.tensors, state)
    with pytest.raises(
        InputError, match="was trained by another version, whose `no_such_key` this one does not read"
    ):
        run("train.max_updates=12")


def test_two_validation_pairs_are_both_shown(run):
    _, entries = run("data.valid.size=2", "train.max_updates=6", "train.validate_every=6")
    sources = [sample[0] for sample in next(e for e in entries if e["event"] == "valid")["samples"]]
    assert len(set(sources)) == 2


def test_training_with_standard_error_closed(run, monkeypatch, capfdbinary):
    monkeypatch.setattr(sys, "stderr", None)
    folder, _ = run("train.max_updates=2")
    assert (folder / "finished.json").exists() and capfdbinary.readouterr().out == b""


def told(folder, cli, config, *words):
    """What a command of --notify was told, and the status of the training."""
    program = folder / "tell.py"
    program.write_text("import sys; open(sys.argv[1], 'w').write(sys.stdin.read())", encoding="utf-8")
    command = f"{sys.executable} '{program}' '{folder / 'told.json'}'"
    status = cli("train", config, "--out", folder / "run", "--notify", command, *words).status
    return json.loads((folder / "told.json").read_text(encoding="utf-8")), status


def test_a_command_is_told_how_a_training_has_ended(write_config, tmp_path, cli):
    config = write_config()
    facts, status = told(tmp_path, cli, config)
    assert status == 0 and facts["event"] == "finished" and facts["scores"].keys() == {"BLEU", "chrF"}
    assert facts["folder"] == str(tmp_path / "run") and facts["step"] > 1
    facts, status = told(tmp_path, cli, config, "model.d_model=48", "--fresh", "train.learning_rate=1e30")
    assert status == 1 and facts["event"] == "failed" and "has diverged" in facts["message"]
    facts, status = told(tmp_path, cli, config, "train.max_update=3")
    assert status == 2 and "did you mean `train.max_updates`" in facts["message"]
    result = cli("train", config, "--notify", "no-such-program")
    assert result.status == 2 and "--notify: must name a program that is installed" in result.err


def test_the_energy_of_a_training_is_told_where_the_machine_tells(tmp_path):
    counter = tmp_path / "intel-rapl:0"
    counter.mkdir()
    (counter / "max_energy_range_uj").write_text("9000000")

    def used(microjoules):
        (counter / "energy_uj").write_text(str(microjoules))
        return meter.joules()

    (counter / "energy_uj").write_text("4000000")
    meter = EnergyMeter(tmp_path)
    assert used(6000000) == 2.0 and used(1000000) == 6.0  # it has begun again at 9
    assert EnergyMeter(tmp_path / "none").joules() is None


def test_a_compiler_that_is_not_there_is_told(run):
    from torch._inductor.exc import InductorError

    def broken(*arguments):
        raise InductorError(RuntimeError("no C++ compiler"), None)

    said = "torch.compile failed: .*no C\\+\\+ compiler; set train.compile=false"
    with before_each_update(broken), pytest.raises(WorkError, match=said):
        run()


def test_japanese_without_its_word_splitter_is_refused_at_the_start(run, tmp_path, monkeypatch):
    for name in ("MeCab", "ipadic", "sacrebleu.tokenizers.tokenizer_ja_mecab"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match="needs mecab-python3 and ipadic, which cannot be imported"):
        run("evaluate.tokenize=ja-mecab")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("sides, is_told", [(("source", "target"), False), (("target", "source"), True)])
def test_exchanged_sides_are_told(run, tmp_path, capfd, sides, is_told):
    pytest.importorskip("py3langid")
    for side, number in zip(sides, (0, 1)):
        lines = "".join(f"{pair[number]}\n" for pair in toy.generate("train", 200))
        (tmp_path / f"{side}.txt").write_text(lines, encoding="utf-8")
    files = f"{{source: {tmp_path}/source.txt, target: {tmp_path}/target.txt}}"
    run(f"data.train={files}", "train.max_updates=1")
    said = "the sources are in de and the targets in en; stop with Ctrl-C and exchange source and target"
    assert (said in capfd.readouterr().err) == is_told


def test_ten_broken_updates_in_a_row_stop_with_advice(run, capfd):
    advice = "the gradient of 10 updates in a row is not finite; lower train.learning_rate .* `fresh`"
    with pytest.raises(WorkError, match=advice):
        run("train.learning_rate=1e30", "train.max_updates=40", "train.warmup=0")
    said = capfd.readouterr().err
    assert "note: train.learning_rate is 1e+30; Transformers seldom learn with more than 0.1" in said
    assert "was skipped: its gradient is not finite" in said


def test_a_device_that_runs_ahead_is_read_later_and_tells_the_same(run):
    """As a GPU does; here the processor plays it."""
    ends = []
    for name, device in (("a", nullcontext()), ("b", results_read_later())):
        with device:
            folder, entries = run(
                "train.max_updates=23", "train.log_every=7", "train.save_every=9", f"name={name}"
            )
        apart = ("seconds", "estimated", "tokens_per_second", "memory_mb")  # time, and the process's peak
        told = [{key: value for key, value in entry.items() if key not in apart} for entry in entries[1:]]
        ends.append((told, load_file(folder / "model.safetensors")))
    assert ends[0][0] == ends[1][0]
    assert all(torch.equal(ends[0][1][name], ends[1][1][name]) for name in ends[0][1])
    said = "the gradient of 10 updates in a row is not finite"
    with results_read_later(), pytest.raises(WorkError, match=said):
        run("train.learning_rate=1e30", "train.max_updates=40", "train.warmup=0", "name=c")


@pytest.mark.usefixtures("little_memory")
def test_micro_batches_the_memory_asked_for_are_kept_by_a_run_that_goes_on(run, capfd):
    """A batch in parts draws other dropout than a whole one."""
    same = ("train.validate_every=12", "train.average_checkpoints=1", "train.schedule=constant")
    same = (*same, "train.micro_batch_tokens=400")
    straight, _ = run(*same, "train.max_updates=12", "name=a")
    run(*same, "train.max_updates=6", "name=b")
    capfd.readouterr()
    gone_on, _ = run(*same, "train.max_updates=12", "name=b")
    said = capfd.readouterr().err
    assert re.search(
        r"in micro-batches of at most \d+ positions, as before; train.micro_batch_tokens sets another", said
    )
    assert "not enough memory" not in said
    weights = [
        load(folder / "checkpoints" / "step-00000012").tensors["model"] for folder in (straight, gone_on)
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    run(*same, "train.max_updates=14", "train.micro_batch_tokens=150", "name=b")
    assert "as before" not in capfd.readouterr().err


def test_ranks_share_a_validation(write_config, tmp_path):
    """Each computes its part of the loss and translates its part of the sentences."""

    class OneOfTwo(Ranks):
        def sum(self, *values):
            summed.append(values)
            return list(values)

        def gather(self, value):
            gathered.append(value)
            return [value, value]

        def broadcast(self, value):
            sent.append(value)
            return sent[0]

    run = open_run(load_config(write_config()), RunFolder(tmp_path / "run"))
    summed, gathered, sent, place = [], [], [], torch.device("cpu")
    whole = validate(run.model, run.data, run.config, place)
    for rank in (0, 1):
        validate(run.model, run.data, run.config, place, OneOfTwo(rank, 2))
    (nll_0, tokens_0), (nll_1, tokens_1) = summed
    assert 0 < tokens_0 < tokens_0 + tokens_1 == run.data.valid[0].pairs.lengths(1).sum()
    assert (nll_0 + nll_1) / (tokens_0 + tokens_1) == pytest.approx(whole.deciding.loss)
    assert [len(translations) for translations in gathered] == [20, 20]


def test_running_out_of_memory_outside_an_update_is_told_in_one_line(run):
    def scarce(*args):
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried ..."
        )

    said = r"^not enough memory; .* lower decode.batch_tokens and train.micro_batch_tokens, and run the "
    with validations(scarce), pytest.raises(WorkError, match=said):
        run("train.max_updates=12")


def test_a_second_run_of_the_same_seed_writes_the_same_file(run, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        folder, _ = run("train.max_updates=6", f"seed={seed}")
        folder.rename(tmp_path / name)
    files = [tmp_path / name / "model.safetensors" for name in "abc"]
    assert files[0].read_bytes() == files[1].read_bytes()
    first, other = load_file(files[0]), load_file(files[2])
    assert any(not torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize(
    "overrides",
    [
        "model.norm_kind=rms model.qk_norm=true model.num_kv_heads=1 train.average=ema",
        "tokenizer.shared=false tokenizer.vocab_size=400 model.feed_forward=swiglu model.share_layers=true "
        "model.num_encoder_layers=3 model.layer_drop=0.2",
        "model.position=learned model.norm=post tokenizer.kind=unigram model.tie_embeddings=false "
        "train.optimizer=adam train.schedule=linear",
    ],
)
def test_variants_train_and_translate(run, overrides):
    folder, _ = run("train.max_updates=4", *overrides.split())
    results = Translator.load(folder, device="cpu").translate(["The dog sleeps.", "", "dog " * 200])
    assert len(results) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [
        [],
        ["model.position=rotary", "model.attention.window=3"],
        ["model.position=alibi", "model.attention.window=3"],
        ["model.attention.score=cosine", "model.position=learned"],
        ["model.attention.score={encoder: euclidean, decoder: dot, cross: general}"],
    ],
    ids=" ".join,
)
def test_a_compiled_model_trains_to_the_same_and_saves_canonical_names(run, mechanism):
    # No dropout: compiled code draws other masks. A large epsilon: Adam makes whole steps of gradients that
    # are only noise.
    same = ("train.max_updates=6", "train.packed=true", "model.dropout=0.0", "train.eps=1e-3", *mechanism)
    compiled, _ = run("train.compile=true", "name=a", *same)
    plain, _ = run("train.compile=false", "name=b", *same)
    first, second = (load_file(folder / "model.safetensors") for folder in (compiled, plain))
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], atol=1e-4, rtol=1e-3)


# A training that learns nothing any more ends, says why, and leaves the best model before.


def diverged(write_config, tmp_path, **keys):
    """The message of a training that diverges, and its validations."""
    data = {"train": {"toy": "train", "size": 150}}
    settings = {"max_updates": 40, "validate_every": 4, "log_every": 2, "warmup": 1, **keys}
    with pytest.raises(WorkError) as error:
        train(load_config(write_config(data=data, train=settings)), tmp_path / "run")
    entries = read_objects(tmp_path / "run" / "metrics.jsonl")
    return str(error.value), [entry for entry in entries if entry["event"] == "valid"]


def test_a_loss_out_of_all_bounds_ends_it(write_config, tmp_path):
    message, entries = diverged(write_config, tmp_path, learning_rate=100.0)
    assert "the training has diverged: at update" in message and "lower train.learning_rate (100)" in message
    assert "start over with" in message
    assert not any(entry["is_best"] for entry in entries if entry["loss"] > 4 * math.log(400))


def test_validations_worse_than_a_guess_end_it(write_config, tmp_path):
    """How bad a model becomes depends on the processor's arithmetic: here it is twice as bad as a guess."""

    def worse(validate, *words):
        result = validate(*words)
        return replace(result, deciding=replace(result.deciding, loss=2 * math.log(450)))

    with validations(worse):
        message, entries = diverged(write_config, tmp_path, learning_rate=1.1, log_every=50)
    assert len(entries) == 3 and "the validation loss is" in message


def test_a_model_that_overfits_goes_on(write_config, tmp_path):
    """Worse than a guess on the validation set, but not on what it is trained on."""
    pairs = list(toy.generate("train", 40))
    backwards = [(en, de[::-1]) for en, de in toy.generate("valid", 40)]
    for name, rows in (("train", pairs), ("valid", backwards)):
        lines = ["en\tde", *(f"{en}\t{de}" for en, de in rows)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = {"train": {"file": "train.tsv"}, "valid": {"file": "valid.tsv"}, "test": []}
    settings = {"max_updates": 120, "validate_every": 20, "warmup": 1, "learning_rate": 0.02}
    run = train(load_config(write_config(data=data, train=settings)), tmp_path / "run")
    losses = [entry["loss"] for entry in read_objects(run / "metrics.jsonl") if entry["event"] == "valid"]
    assert len(losses) == 6 and min(losses[3:]) > math.log(450)


def test_a_model_that_does_not_learn_has_not_diverged(write_config, tmp_path):
    """Before its first update a model of post-norm layers may be worse than a guess."""
    data = {"train": {"toy": "train", "size": 150}}
    settings = {"max_updates": 16, "validate_every": 4, "warmup": 1, "learning_rate": 1e-12}
    run = train(load_config(write_config(data=data, train=settings)), tmp_path / "run")
    losses = [entry["loss"] for entry in read_objects(run / "metrics.jsonl") if entry["event"] == "valid"]
    assert len(losses) == 4 and min(losses) > math.log(400)
