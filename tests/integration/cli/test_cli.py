"""Every verb and flag through the real command line."""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT
from tests.helpers.companions import needs
from transformer_mt import __version__
from transformer_mt.cli import main, translate_main


def test_version_help_and_nothing(cli):
    assert cli("--version")[:2] == (0, f"transformer-mt {__version__}\n")
    assert "translate text" in cli("--help")[1]
    assert cli()[0] == 2


def test_sigusr1_does_not_end_a_training_that_has_not_begun(cli):
    """Before the first update there is nothing to save."""
    before = signal.getsignal(signal.SIGUSR1)
    try:
        assert cli("train", "no/such.yaml")[0] == 2
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)


def stopped_by_the_keyboard():
    """In the process of the command: Ctrl-C while the config of the model is read."""
    import yaml

    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    yaml.load = stopped


@needs("terms")
def test_ctrl_c_says_how_an_output_is_resumed(cli, tiny_run, tmp_path):
    def said(*words):
        result = cli("translate", tiny_run, "A dog.", *words, before=(stopped_by_the_keyboard,))
        assert result.status == 130
        return result.err

    assert said() == "stopped\n"
    out = ["-o", tmp_path / "out"]
    assert said(*out) == "stopped; run it again with --resume to continue\n"
    for refused in (["--n-best", "3"], ["--memory-out", tmp_path / "new.tmx"]):
        assert said(*out, *refused) == "stopped\n"


def test_help_imports_nothing_slow():
    code = (
        "import sys\nfrom transformer_mt.cli import translate_main\n"
        "try: translate_main(['--help'])\nexcept SystemExit: pass\n"
        "slow = ('torch', 'numpy', 'pyarrow', 'datasets', 'sentencepiece')\n"
        "print([module for module in slow if module in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert result.stderr.decode().strip() == "[]"


def test_a_training_writes_what_it_promises(tiny_run):
    names = {path.name for path in tiny_run.iterdir()}
    files = "config.yaml tokenizer.model model.safetensors checkpoints metrics.jsonl report.md"
    assert {*files.split(), "learning_curve.png"} <= names
    entries = [json.loads(line) for line in (tiny_run / "metrics.jsonl").read_text("utf-8").splitlines()]
    events = [entry["event"] for entry in entries]
    assert (events[0], events[-1]) == ("start", "end")
    assert (events.count("train"), events.count("valid")) == (6, 2)
    train = next(entry for entry in entries if entry["event"] == "train")
    keys = "step epoch tokens learning_rate loss ppl tokens_per_second seconds"
    assert set(keys.split()) <= train.keys()
    valid = next(entry for entry in entries if entry["event"] == "valid")
    assert len(valid["samples"]) == 3 and valid["scores"][0]["signature"].startswith("nrefs:1")
    report = (tiny_run / "report.md").read_text(encoding="utf-8")
    assert re.search(r"\| parameters +\|", report) and "- BLEU: `nrefs:1" in report
    assert "d_model: 32" in report and "![learning curve](learning_curve.png)" in report
    assert (tiny_run / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_translating_words_and_standard_input(tiny_run, cli):
    status, out, err = cli("translate", tiny_run, "The dog sleeps.", "", "A cat sings.")
    lines = out.split("\n")
    assert status == 0 and len(lines) == 4 and lines[1] == "" and lines[0] != ""
    assert err.strip().split("\n")[0] == "line 2: there is nothing to translate"
    for names in ((), ("-i", "-", "-o", "-")):
        result = cli("translate", tiny_run, *names, stdin=b"The dog sleeps.\r\n\nA cat sings.")
        assert result.status == 0 and result.out.split("\n") == lines


def test_translate_is_the_same_command(tiny_run, capfdbinary):
    main(["translate", str(tiny_run), "The dog sleeps."])
    expected = capfdbinary.readouterr().out
    assert translate_main([str(tiny_run), "The dog sleeps."]) == 0
    assert capfdbinary.readouterr().out == expected


def test_text_may_stand_anywhere_and_begin_with_a_dash(tiny_run, cli):
    expected = cli("translate", tiny_run, "The dog sleeps.", "--beam", "2")[1]
    assert cli("translate", "--beam", "2", tiny_run, "The dog sleeps.")[1] == expected
    assert cli("translate", tiny_run, "--beam", "2", "The dog sleeps.")[1] == expected
    assert cli("translate", tiny_run, "--", "- The dog sleeps.")[0] == 0


def test_files_in_and_out(tiny_run, tmp_path, cli):
    source = tmp_path / "in.txt.gz"
    source.write_bytes(gzip.compress("The dog sleeps.\n\n\u2028\nA cat sings.\n".encode()))
    status, out, err = cli("translate", tiny_run, "-i", source, "-o", tmp_path / "out.txt")
    assert (status, out) == (0, "") and err.endswith(f"written: {tmp_path / 'out.txt'}\n")
    assert (tmp_path / "out.txt").read_text(encoding="utf-8").count("\n") == 4


def test_json_says_what_was_asked_for(tiny_run, cli):
    status, out, _ = cli("translate", tiny_run, "--json", "--n-best", "2", "The dog sleeps.", "")
    first, second = map(json.loads, out.strip().split("\n"))
    assert first["line"] == 1 and first["source"] == "The dog sleeps." and first["problems"] == []
    assert first["score"] < 0 and all(isinstance(token, str) for token in first["tokens"])
    assert len(first["n_best"]) == 2 and first["n_best"][0]["translation"] == first["translation"]
    assert second["translation"] == "" and second["problems"] == ["there is nothing to translate"]


def test_n_best_and_settings_of_the_search(tiny_run, cli):
    words = "--n-best 3 --beam 4 --length-penalty 0.6 --batch-tokens 64 --max-length 9 --dtype bfloat16"
    status, out, _ = cli("translate", tiny_run, *words.split(), "--device", "cpu", "The dog sleeps.")
    assert status == 0
    scores = [float(line.split("\t")[1]) for line in out.strip().split("\n")]
    assert 1 < len(scores) <= 3 and scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    "words, message",
    [
        (["no/such/run", "x"], "no/such/run: no such folder; a model is the folder of a run"),
        (["RUN", "-i", "no/such.txt"], "no/such.txt: no such file"),
        (["RUN", "-i", "."], "must be a file, but is a folder"),
        (["RUN", "x", "-o", "no/such/out.txt"], "no/such/out.txt: cannot be written: No such file or dir"),
        (["RUN", "x", "-i", "y"], "give TEXT or --input, not both"),
        (["RUN", "x", "--n-best", "9"], "--n-best must be at most --beam (5), but is 9"),
        (["RUN", "x", "--length-penalty", "-1"], "--length-penalty must be greater than or equal to 0, but"),
        (["RUN", "x", "--lenght-penalty", "1"], "penalty is not an option; did you mean --length-penalty?"),
        (["RUN", "x", "--lenght-penalty=1"], "--lenght-penalty is not an option; did you mean --length-p"),
        (["RUN", "x", "--xyzzy"], "--xyzzy is not an option; see transformer-mt translate --help"),
        (["RUN", "x", "--search", "sampel"], "'sample' or 'mbr', but is 'sampel'; did you mean 'sample'?"),
        ([], "MODEL must be given: transformer-mt translate MODEL [TEXT ...]; see transformer-mt translate"),
        (["RUN", "x", "--src", "en"], "--src is not an option; write --from LANG"),
        (["RUN", "-i", "https://x.org/a.txt"], "must be a file here; download it first: curl -LO https://x"),
        (["RUN", "x", "--device", "cuda:7"], "there is no cuda:7"),
        (["RUN", "x", "--device", "tpu"], "must be auto, cpu, cuda, cuda:N or mps, but is tpu"),
    ],
)
def test_mistakes_get_one_line_and_status_two(tiny_run, cli, words, message):
    status, out, err = cli("translate", *(str(tiny_run) if word == "RUN" else word for word in words))
    assert status == 2 and out == ""
    assert message in err and err.count("\n") == 1


@needs("inspection", "lab", "serving", "wizard")
@pytest.mark.parametrize(
    "words, message",
    [
        (["trian", "x.yaml"], "trian is no command; did you mean train?"),
        (["demo"], "demo is no command; `make demo` or `transformer-mt train demo` trains the demo"),
        (["serve", "--prot", "5001"], "--prot is not an option; did you mean --port?"),
        (["train", "x.yaml", "--gpu", "0"], "--gpu is not an option; a GPU is used where there is one"),
        (["new", "en-de", "a.tsv"], "source and target are two words: en de"),
        (
            ["plot", "curvs", "x"],
            "must be one of attention, curves, schedule, but is curvs; did you mean curves?",
        ),
        (["plot", "attention", "x", "--hed", "3"], "--hed is not an option; did you mean --head?"),
        (["evaluate", "x", "--out", "y"], "not an option of this command, but of train, inspect, backtr"),
        (["train", "demo", "--lr", "0.1"], "a setting is given as key=value: train.learning_rate=0.1\n"),
        (
            ["train", "--config", "x.yaml"],
            "CONFIG is given without an option: transformer-mt train CONFIG [key",
        ),
        (["train", "demo", "--output", "x"], "--output is not an option; did you mean --out?\n"),
        (["train", "demo", "--resume"], "--resume is not an option; the same command resumes a training"),
        (["translate", "RUN", "x", "--beam-size", "4"], "--beam-size is not an option; did you mean --beam?"),
        (["train", "demo", "--epochs=3"], "a setting is given as key=value: train.max_epochs=3\n"),
        (["train", "demo", "--batch-size", "64"], "key=value: train.batch_tokens=... (padded tokens)\n"),
        (["train", "demo", "--limit", "100"], "--limit is not an option; see transformer-mt train --help"),
        (["new", "english", "german"], "must be a code such as en or zh_Hans, but is english; write en;"),
        (["new", "en", "jp", "x"], "but jp is a country's; Japanese is ja; see transformer-mt new --help"),
        (["translate", "A", "man", "sleeps"], 'in quotes, after the model: translate MODEL "A man sleeps"'),
        (["evaluate", "x", "y"], "y is one argument too many; see transformer-mt evaluate --help"),
    ],
)
def test_a_wrong_word_gets_the_nearest_right_one(cli, words, message):
    status, out, err = cli(*words)
    assert status == 2 and out == "" and message in err and err.count("\n") == 1


def test_output_over_a_corpus_of_the_model_is_refused(tiny_run, tmp_path, cli):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    (tmp_path / "all.de").write_text("Der Hund.\n", encoding="utf-8")
    config = (run / "config.yaml").read_text(encoding="utf-8")
    corpus = f"train: {{source: all.en, target: {tmp_path}/all.de}}"
    (run / "config.yaml").write_text(
        re.sub(r"train: .*toy.*|train:\n    toy: .*", corpus, config, count=1), "utf-8"
    )
    assert str(tmp_path) in (run / "config.yaml").read_text(encoding="utf-8")
    result = cli("translate", run, "A dog.", "-o", tmp_path / "all.de")
    assert result.status == 2 and "all.de: must not be a file that the model was trained with" in result.err
    assert (tmp_path / "all.de").read_text(encoding="utf-8") == "Der Hund.\n"


def test_output_over_the_input_is_refused(tiny_run, tmp_path, cli):
    path = tmp_path / "a.txt"
    path.write_text("The dog sleeps.\n", encoding="utf-8")
    status, _, err = cli("translate", tiny_run, "-i", path, "-o", path)
    assert status == 2 and "the output must not be an input" in err
    assert path.read_text(encoding="utf-8") == "The dog sleeps.\n"
    command = f"'{sys.executable}' -m transformer_mt translate '{tiny_run}' -o '{path}' < '{path}'"
    result = subprocess.run(
        ["sh", "-c", command], capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert result.returncode == 2 and b"the output must not be an input" in result.stderr
    assert path.read_text(encoding="utf-8") == "The dog sleeps.\n"


def test_closed_standard_input_is_a_sentence(tiny_run):
    command = f"'{sys.executable}' -m transformer_mt translate '{tiny_run}' <&-"
    result = subprocess.run(
        ["sh", "-c", command], capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert result.returncode == 2 and b"standard input is closed; give TEXT or --input FILE" in result.stderr


def test_bytes_that_are_not_utf8_are_told_and_the_line_stays(tiny_run, cli):
    result = cli("translate", tiny_run, stdin=b"The dog sleeps.\nstra\xdfe\nA cat sings.\n")
    assert result.status == 0 and result.out.count("\n") == 3
    assert "line 2: byte 0xdf is not UTF-8" in result.err


def test_a_closed_pipe_and_ctrl_c_end_quietly(tiny_run):
    command = [sys.executable, "-m", "transformer_mt", "translate", str(tiny_run), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    many = b"The dog sleeps.\n" * 3000
    closed = subprocess.run(
        ["sh", "-c", '"$@" | head -n 1', "sh", *command], input=many, capture_output=True, env=environment
    )
    assert closed.stdout.count(b"\n") == 1 and closed.stderr == b""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    process.stdin.write(b"The dog sleeps.\n")
    process.stdin.flush()
    process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err == b"stopped\n"


def test_ctrl_c_while_the_modules_load_shows_no_traceback():
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "transformer_mt", "translate", "nowhere"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    while not process.stderr.readline().rstrip().endswith(" argparse"):  # the commands' first module
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT and "Traceback" not in err


@pytest.mark.parametrize(("to", "status"), [("> /dev/full", 1), ("| true", 0), (">&-", 0)])
def test_results_that_reach_nobody_are_told_in_one_line_at_most(to, status):
    """Also what Python still holds when the verb is through."""
    command = f"'{sys.executable}' -m transformer_mt config show '{ROOT}/configs/demo.yaml' {to}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONUNBUFFERED", None)
    result = subprocess.run(["sh", "-c", command], capture_output=True, env=environment, text=True)
    assert result.returncode == status
    assert "Exception" not in result.stderr and result.stderr.count("\n") == (1 if status else 0)


def test_too_little_memory_to_translate_is_told_in_one_line(tiny_run, monkeypatch, cli):
    def scarce(*words, **options):
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried ..."
        )

    monkeypatch.setattr("torch.nn.functional.layer_norm", scarce)
    status, out, err = cli("translate", tiny_run, "The dog sleeps.")
    assert (status, out) == (1, "")
    assert err == "not enough memory; lower --batch-tokens or --beam, or close other programs\n"


def test_a_training_that_has_not_ended_is_noted(tiny_run, tmp_path, cli):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run, ignore=shutil.ignore_patterns("finished.json", "ctranslate2"))
    status, out, err = cli("translate", run, "The dog sleeps.")
    assert status == 0 and out and f"the training of {run} has not ended: update 24 of at most 24" in err
    assert "has not ended" not in cli("translate", tiny_run, "The dog sleeps.").err


def test_without_a_command_the_help_is_shown(cli):
    status, out, _ = cli()
    assert status == 2 and "transformer-mt COMMAND ..." in out and "train" in out


@needs("exchange", "wizard")
def test_files_that_are_not_there_are_named_with_the_nearest(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text("a dog\tein Hund: Tier\n", encoding="utf-8")
    (tmp_path / "runs/mine").mkdir(parents=True)
    (tmp_path / "runs/mine/config.yaml").touch()
    (tmp_path / "museum.yaml").write_text("train:\n  max_updates:100\n  seed: 1\n", encoding="utf-8")
    for words, answer in {
        ("train", "pairs.tsv"): "if it holds pairs, `transformer-mt new en de pairs.tsv` writes one",
        ("train", "museum"): "but is neither; did you mean museum.yaml?",
        ("train", "museum.yaml"): "museum.yaml:2: this is not YAML: a space is missing after `max_updates:`",
        ("translate", "runs", "x"): "holds no config.yaml; the runs in it: runs/mine",
        ("new", "en", "de", "pair.tsv"): "pair.tsv: no such file; did you mean pairs.tsv?",
        ("export", "runs/mien", "x", "--to", "onnx"): "runs/mien: no such folder",
    }.items():
        status, _, err = cli(*words)
        assert status == 2 and answer in err, words


def test_with_standard_error_closed_messages_do_not_stand_among_the_results(tmp_path):
    command = f"'{sys.executable}' -m transformer_mt config show '{tmp_path}/none.yaml' 2>&-"
    result = subprocess.run(
        ["sh", "-c", command], capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert result.returncode == 2 and result.stdout == b""


def test_a_machine_that_says_how_many_processes_and_not_which(tmp_path, cli):
    result = cli("config", "show", tmp_path / "none.yaml", WORLD_SIZE="2", new=True)
    assert result.status == 2 and result.err.startswith("rank ?: ") and "Traceback" not in result.err


def test_scores_of_every_set_are_told_where_the_model_takes_no_files(tiny_run, tmp_path, cli):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run, ignore=shutil.ignore_patterns("evaluation"))
    (run / "evaluation").write_text("in the way", encoding="utf-8")
    (tmp_path / "a.en").write_text("the dog sleeps\n", encoding="utf-8")
    pair = ("--source", tmp_path / "a.en", "--reference", tmp_path / "a.en")
    status, out, err = cli("evaluate", run, *pair, *pair, "--beam", "1")
    assert status == 1 and out.count("BLEU") == 2
    assert err.count("evaluation: the translations could not be written: ") == 1


def test_evaluate_prints_signed_scores_and_keeps_the_translations(tiny_run, tmp_path, cli):
    run = tmp_path / "run"  # which no other test evaluated
    shutil.copytree(tiny_run, run, ignore=shutil.ignore_patterns("evaluation"))
    status, out, _ = cli("evaluate", run, "--beam", "2")
    lines = out.split("\n")
    assert status == 0 and lines[0] == "test-0: toy test, 30 sentences, beam 2, by torch in float32"
    assert [line.split()[0] for line in lines[1:4]] == ["BLEU", "chrF", "TER"]
    assert all("nrefs:1" in line for line in lines[1:4]) and "tok:13a" in lines[1]
    rows = (run / "evaluation/test-0.jsonl").read_text(encoding="utf-8").strip().split("\n")
    assert len(rows) == 30 and {"source", "reference", "translation", "score"} == json.loads(rows[0]).keys()
    kept = json.loads((run / "evaluation/test-0.scores.json").read_text(encoding="utf-8"))
    report = (run / "report.md").read_text(encoding="utf-8")
    assert re.search(rf"\| toy test +\| 30 +\| beam 2 +\| +{lines[1].split()[1]} ", report), report
    assert kept["decode"]["beam"] == 2 and f"{kept['scores'][0]['value']:.2f}" == lines[1].split()[1]


def test_evaluate_takes_files_and_speaks_of_tokenised_text(tiny_run, tmp_path, cli):
    (tmp_path / "a.en").write_text("the dog sleeps .\nthe cat sings .\n", encoding="utf-8")
    (tmp_path / "a.de").write_text("der hund schläft .\ndie katze singt .\n", encoding="utf-8")
    status, out, err = cli(
        "evaluate", tiny_run, "--source", tmp_path / "a.en", "--reference", tmp_path / "a.de", "--json"
    )
    facts = json.loads(out)
    assert status == 0 and facts["sentences"] == 2 and facts["scores"][0]["name"] == "BLEU"
    assert "the references are tokenised text" in err


def test_evaluate_mistakes(tiny_run, cli):
    for words, message in (
        (["--source", "a"], "must have the same number of --reference, at least one, but there are 1 "),
        (["--source", "no/a", "--reference", "no/b"], "no/a: no such file"),
    ):
        status, _, err = cli("evaluate", tiny_run, *words)
        assert status == 2 and message in err


@needs("lab")
def test_a_table_is_printed_where_nothing_can_be_kept(tiny_run, tmp_path, cli):
    """Of a shared model: the command ended before its table."""
    run = shutil.copytree(tiny_run, tmp_path / "shared", ignore=shutil.ignore_patterns("evaluation"))
    (run / "evaluation").write_text("in the way", encoding="utf-8")
    status, out, err = cli("evaluate", run, "--robust", "--beam", "1")
    assert status == 1 and "in capitals" in out and "the translations could not be written" in err


def test_config_show_and_schema(write_config, cli):
    status, out, _ = cli("config", "show", write_config(), "train.max_updates=9")
    assert status == 0 and "max_updates: 9  # Number of updates after which training ends." in out
    status, out, _ = cli("config", "schema")
    assert status == 0 and json.loads(out)["title"] == "transformer_mt config"


@needs("inspection")
def test_inspect_prints_and_writes_its_report(write_config, tmp_path, cli):
    out = tmp_path / "looked"
    done = cli("inspect", write_config(), "data.max_length=60", "--out", out)
    assert done.status == 0
    assert done.out == (out / "inspect.md").read_text(encoding="utf-8")
    assert "# Inspection of tiny\n\nGood enough; about 1,500 usable" in done.out
    assert "inspecting toy train" in done.err and "inspect.html" in done.err
    assert (out / "inspect.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@needs("inspection", "terms")
def test_inspect_tells_which_terms_never_match(write_config, tmp_path, cli):
    file = tmp_path / "terms.tsv"
    file.write_text("garden\tGarten\nbird\tZebra\nxylophone\tXylophon\n", encoding="utf-8")
    settings = [f"data.changes=[{{terms: {{file: {file}}}}}]", "--out", tmp_path / "looked"]
    done = cli("inspect", write_config(), *settings)
    assert done.status == 0 and "terms.tsv: 3 terms;" in done.out
    assert "1 terms are in no source: xylophone." in done.out
    assert "1 terms are in sources, but their translations are in no target: bird." in done.out


@needs("inspection")
def test_inspect_mistakes(write_config, tmp_path, cli):
    missing = {"source": str(tmp_path / "no.en"), "target": str(tmp_path / "no.de")}
    done = cli("inspect", write_config(data={"train": missing}), "--out", tmp_path / "x")
    assert done.status == 2 and "no.en: no such file" in done.err
    assert not (tmp_path / "x").exists()


def test_train_mistakes_are_told_before_any_work(write_config, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_config()
    for words, message in [
        ([path.with_name("tyni.yaml")], "did you mean"),
        ([path, "train.max_update=5"], "`train.max_update` is not a key; did you mean `train.max_updates`?"),
        ([path, "data.train={source: no/a, target: no/b}"], "no/a: no such file"),
        ([path, "data.train={hub: no/such/set, split: train}"], "no/such/set: no such folder"),
        ([path, "tokenizer.vocab_size=90000"], "`tokenizer.vocab_size` must be at most"),
        ([path, "train.device=cuda:9"], "there is no cuda:9"),
        ([path, "train.guided_alignment={file: no.links, weight: 0.05}"], "no such file"),
    ]:
        status, out, err = cli("train", *words)
        assert status == 2 and message in err.strip().split("\n")[-1], err
        assert not (tmp_path / "runs").exists()


@needs("terms")
def test_a_glossary_that_is_not_there_is_told_before_any_work(write_config, tmp_path, cli):
    done = cli("train", write_config(), "data.changes=[{terms: {file: no.tsv}}]")
    assert done.status == 2 and "no such file" in done.err and "Traceback" not in done.err
    assert "reading" not in done.err and not (tmp_path / "runs").exists()


# Messages that name the cause of what went wrong outside of the program.


def test_a_link_to_nothing(tiny_run, tmp_path, cli):
    link, translate = tmp_path / "link", ["translate", tiny_run]
    for target, words in (
        ("gone", ["train", link]),
        ("gone", [*translate, "-i", link]),
        ("no/folder", [*translate, "A dog.", "-o", link]),
    ):
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / target)
        status, _, err = cli(*words)
        assert status == 2
        assert f"{link}: must be a file, but is a link to {tmp_path / target}, which is" in err


def test_a_config_in_utf_16(write_config, cli):
    path = write_config()
    path.write_bytes(path.read_text(encoding="utf-8").encode("utf-16"))
    status, _, err = cli("train", path)
    assert status == 2 and "a config must be in UTF-8, but is UTF-16; save it as UTF-8" in err


def test_a_config_whose_file_name_can_be_no_run(write_config, cli):
    path = write_config("my config (1).yaml")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("name: tiny\n", ""), encoding="utf-8")
    status, _, err = cli("train", path)
    assert status == 2 and "but is 'my config (1)'; set `name`, or rename the file" in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_disk_and_a_limit_of_the_size_of_files(tiny_run, tmp_path):
    command = [sys.executable, "-m", "transformer_mt", "translate", str(tiny_run), "A dog."]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "wb") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=buffered)
    assert result.returncode == 1
    assert result.stderr.endswith(
        "standard output: No space left on device; free some space, then run it again\n"
    )
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("A dog sleeps.\n" * 2000, encoding="utf-8")
    words = f"translate '{tiny_run}' -i '{source}' -o '{out}' --beam 1"
    limited = f"ulimit -f 8; exec '{sys.executable}' -m transformer_mt {words}"
    result = subprocess.run(["bash", "-c", limited], stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert f"{out}: File too large; raise the limit on the size of files (ulimit -f)" in result.stderr


@needs("exchange")
def test_an_export_to_something_that_is_there(tiny_run, tmp_path, cli):
    (tmp_path / "there").write_text("", encoding="utf-8")
    status, _, err = cli("export", tiny_run, tmp_path / "there")
    assert (
        status == 2 and "there: must be a new folder, but a file is there; remove it or name another" in err
    )
