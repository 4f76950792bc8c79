"""What translate can be asked for, through the real command line."""

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from itertools import combinations

import pytest

from tests.conftest import ROOT
from tests.helpers.faults import killed_at_the_end
from transformer_mt import Translator
from transformer_mt.companion import companions

LINES = [
    "The dog sleeps.",
    "",
    "A cat sings.",
    "The old teacher sees a bird. A dog.",
    "Today the child reads.",
]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


@pytest.fixture
def interrupted(monkeypatch):
    """Translations end as if they had been killed after their last line: the record of what they
    wrote stays.
    """
    killed_at_the_end(monkeypatch)


def test_resume_continues_without_repeating_or_losing_a_line(tiny_run, source, tmp_path, cli, interrupted):
    out = tmp_path / "out.txt"
    command = ["translate", tiny_run, "-i", source, "-o", out, "--beam", "1"]
    assert cli(*command)[0] == 0
    whole = out.read_bytes()
    # As an interruption at any byte leaves it
    for kept in (0, len(whole) // 2, len(whole) - 1, len(whole)):
        out.write_bytes(whole[:kept])
        status, _, err = cli(*command, "--resume")
        assert status == 0 and out.read_bytes() == whole
        assert f"resuming after {whole[:kept].count(bytes([10]))} lines" in err
    out.unlink()
    assert cli(*command, "--resume")[0] == 0
    assert out.read_bytes() == whole


def test_resumed_json_lines_keep_their_numbers(tiny_run, source, tmp_path, cli, interrupted):
    out = tmp_path / "out.jsonl"
    command = ["translate", tiny_run, "-i", source, "-o", out, "--json", "--prefix", "Der", "--resume"]
    assert cli(*command)[0] == 0
    whole = out.read_text(encoding="utf-8")
    out.write_text("".join(whole.splitlines(keepends=True)[:3]) + '{"line": 4, "sou', encoding="utf-8")
    assert cli(*command)[0] == 0
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").split("\n") if line]
    assert [row["line"] for row in rows] == [1, 2, 3, 4, 5] and [row["source"] for row in rows] == LINES
    assert [row["translation"] for row in rows] == [
        json.loads(line)["translation"] for line in whole.split("\n") if line
    ]


def test_what_was_begun_otherwise_is_not_resumed(tiny_run, source, tmp_path, cli, interrupted):
    out, other, model = tmp_path / "out.txt", tmp_path / "other.txt", tmp_path / "model"
    (terms := tmp_path / "terms.tsv").write_text("dog\tZebra\n", encoding="utf-8")
    other.write_text("".join(f"{line}\n" for line in reversed(LINES)), encoding="utf-8")
    shutil.copytree(tiny_run, model, ignore=shutil.ignore_patterns("checkpoints", "averaging"))
    with (model / "config.yaml").open("a", encoding="utf-8") as config:
        config.write("# another\n")
    assert cli("translate", tiny_run, "-i", source, "-o", out)[0] == 0
    begun = b"".join(out.read_bytes().splitlines(keepends=True)[:2])
    out.write_bytes(begun)
    changes = [
        (tiny_run, ["--beam", "2"], "the setting decode.beam (5 then, 2 now)"),
        (tiny_run, ["--json"], "the setting --json (false then, true now)"),
        (tiny_run, ["--protect", "x"], 'the setting --protect (null then, "x" now)'),
        (tiny_run, ["--dtype", "bfloat16"], "the setting --dtype"),
        (tiny_run, ["--ensemble", tiny_run], "model 2"),
        (tiny_run, ["-i", other], "the input,"),
        (model, [], "the model,"),
    ]
    if "terms" in companions():
        changes.append((tiny_run, ["--glossary", terms], "the glossary,"))
    for folder, words, what in changes:
        status, _, err = cli("translate", folder, "-i", source, "-o", out, "--resume", *words)
        assert status == 2 and f"was begun with another value of {what}" in err, err
        assert "translate it again without --resume" in err and out.read_bytes() == begun
    command = ["translate", tiny_run, "-i", source, "-o", out, "--resume", "--batch-tokens", "64"]
    assert cli(*command)[0] == 0


def test_an_output_without_a_record_is_not_resumed(tiny_run, source, tmp_path, cli):
    out = tmp_path / "out.txt"
    out.write_text("x\n" * 3, encoding="utf-8")
    status, _, err = cli("translate", tiny_run, "-i", source, "-o", out, "--resume")
    assert status == 2 and "out.txt: cannot be resumed: its record (.out.txt.resume.json) is missing" in err
    assert out.read_text(encoding="utf-8") == "x\n" * 3
    assert cli("translate", tiny_run, "-i", source, "-o", out)[0] == 0
    assert not (tmp_path / ".out.txt.resume.json").exists()  # complete: nothing to resume


def test_an_output_with_more_lines_than_the_input_is_not_resumed(tiny_run, tmp_path, cli, interrupted):
    out = tmp_path / "out.txt"
    assert cli("translate", tiny_run, "-o", out, "A dog.")[0] == 0
    out.write_text("x\n" * 9, encoding="utf-8")
    status, _, err = cli("translate", tiny_run, "-o", out, "--resume", "A dog.")
    assert (
        status == 2 and "holds 9 lines, but the input has 1; was it written from another input file?" in err
    )
    assert out.read_text(encoding="utf-8") == "x\n" * 9


@pytest.mark.parametrize(
    "content, found",
    [
        (b"PK\x03\x04\x14\x00", "is a zip file, as .docx, .xlsx and .odt are"),
        (b"%PDF-1.7\nA dog.", "is a PDF file"),
        ("A dog.\n".encode("utf-16"), "is UTF-16"),
        (b"A d\0o\0g\0.\0\n", "begins with 4 NUL bytes in 10"),
    ],
)
def test_what_is_no_text_is_refused_and_the_output_kept(tiny_run, tmp_path, cli, content, found):
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(content)
    out.write_text("precious\n", encoding="utf-8")
    status, _, err = cli("translate", tiny_run, "-i", source, "-o", out)
    assert status == 2 and f"in.txt: must be text in UTF-8, but {found}; save it as UTF-8 text first" in err
    assert out.read_text(encoding="utf-8") == "precious\n"


@pytest.mark.parametrize(
    "words", [["--ensemble", "RUN", "--beam", "0"], ["--prefixes", "no/file"], ["--prefixes", "OUT"]]
)
def test_a_refused_command_leaves_the_output_as_it_was(tiny_run, source, tmp_path, cli, words):
    out = tmp_path / "out.txt"
    out.write_text("precious\n" * 5, encoding="utf-8")
    names = {"RUN": tiny_run, "OUT": out}
    status, _, err = cli("translate", tiny_run, "-i", source, "-o", out, *(names.get(w, w) for w in words))
    assert status == 2 and err.count("\n") == 1
    assert out.read_text(encoding="utf-8") == "precious\n" * 5


def test_resuming_in_the_input_itself_is_refused_before_it_is_touched(tiny_run, tmp_path, cli):
    path = tmp_path / "a.txt"
    path.write_text("The dog sleeps.\nA cat", encoding="utf-8")
    status, _, err = cli("translate", tiny_run, "-i", path, "-o", path, "--resume")
    assert status == 2 and "the output must not be an input" in err
    assert path.read_text(encoding="utf-8") == "The dog sleeps.\nA cat"


def test_whatever_the_locale_text_is_utf8(tiny_run, tmp_path, cli):
    """In files, in arguments and in what is printed."""
    (tmp_path / "a.txt").write_text("Das Mädchen.\n", encoding="utf-8")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = ["translate", tiny_run, "-i", tmp_path / "a.txt", "--prefix", "Mädchen"]
    begun = cli(*words, **plain, new=True)
    assert begun.status == 0 and begun.out.startswith("Mädchen")


def test_a_closed_standard_output_is_told(tiny_run):
    command = [sys.executable, "-m", "transformer_mt", "translate", str(tiny_run), "A dog."]
    result = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command], capture_output=True, cwd=ROOT)
    assert result.returncode == 2 and result.stderr == b"standard output is closed; give --output FILE\n"


def test_every_search_and_rule_can_be_asked_for(tiny_run, cli):
    for words in (
        "--search sample --samples 3 --top-k 5 --temperature 0.7 --seed 3 --n-best 2",
        "--search sample --top-p 0.9",
        "--search mbr --samples 4 --utility bleu",
        "--length-penalty-form gnmt",
        "--min-length 2 --max-length 9 --no-repeat-ngram 2",
        "--banned Hund --banned Katze --max-length-ratio 1.5 --prefix Ein",
    ):
        status, out, err = cli("translate", tiny_run, *words.split(), "The dog sleeps.")
        assert status == 0, err
        assert out.count("\n") == (2 if "--n-best" in words else 1)
    sampled = [
        cli("translate", tiny_run, "--search", "sample", "--seed", s, "The dog sleeps.")[1] for s in "112"
    ]
    assert sampled[0] == sampled[1] != sampled[2]


def test_prefixes_stand_beside_their_lines(tiny_run, source, tmp_path, cli):
    prefixes = tmp_path / "prefixes.txt"
    prefixes.write_text("Der Hund\n\nEine\nDie\n\n", encoding="utf-8")
    lines = cli("translate", tiny_run, "-i", source, "--prefixes", prefixes)[1].split("\n")
    assert lines[0].startswith("Der Hund") and lines[2].startswith("Eine") and lines[3].startswith("Die")
    plain = cli("translate", tiny_run, "-i", source)[1].split("\n")
    assert lines[1] == plain[1] == "" and lines[4] == plain[4]
    prefixes.write_text("Der Hund\n", encoding="utf-8")
    status, _, err = cli("translate", tiny_run, "-i", source, "--prefixes", prefixes)
    assert status == 2 and "must have one prefix per input line, but ends at line 1" in err
    prefixes.write_text("Der\n" * 9, encoding="utf-8")
    status, _, err = cli("translate", tiny_run, "-i", source, "--prefixes", prefixes)
    assert status == 2 and "must have one prefix per input line, but has more than 5" in err


def test_plain_n_best_lines_say_which_line_they_are_of(tiny_run, source, cli):
    out = cli("translate", tiny_run, "-i", source, "--n-best", "3")[1]
    numbers = [int(line.split("\t")[0]) for line in out.strip().split("\n")]
    assert sorted(set(numbers)) == [1, 2, 3, 4, 5] and numbers == sorted(numbers) and numbers.count(2) == 1


def test_resumed_lines_keep_their_prefixes(tiny_run, source, tmp_path, cli, interrupted):
    out, prefixes = tmp_path / "out.txt", tmp_path / "prefixes.txt"
    prefixes.write_text("Der Hund\n\nEine\nDie\nHeute\n", encoding="utf-8")
    command = ["translate", tiny_run, "-i", source, "--prefixes", prefixes, "-o", out]
    assert cli(*command)[0] == 0
    whole = out.read_bytes()
    out.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    assert cli(*command, "--resume")[0] == 0
    assert out.read_bytes() == whole


def test_protected_text_and_flags(tiny_run, cli):
    out = cli("translate", tiny_run, "--json", "--protect", r"<[^>]+>", "The <b>dog</b> sleeps.")[1]
    row = json.loads(out)
    assert (
        row["translation"].count("<b>") == row["translation"].count("</b>") == 1
        and "protected_split" in row["flags"]
    )
    assert row["problems"][0].startswith("protected text was lost")
    row = json.loads(cli("translate", tiny_run, "--json", "The dog sleeps. " * 30)[1])
    assert "split" in row["flags"] and len(row["segments"]) == 30
    row = json.loads(cli("translate", tiny_run, "--json", "A. B.", "--split-sentences", "false")[1])
    assert "split" not in row["flags"] and row["segments"] == []


def test_an_export_in_an_ensemble_is_refused(tiny_run, tmp_path, cli):
    shutil.copytree(tiny_run, tmp_path / "ct2")
    (tmp_path / "ct2" / "model.bin").touch()
    status, _, err = cli("translate", tiny_run, "--ensemble", tmp_path / "ct2", "The dog sleeps.")
    assert status == 2 and "ct2: is an export; an ensemble is searched in the folders of runs" in err


def test_an_ensemble_of_runs(tiny_run, cli):
    alone = cli("translate", tiny_run, "The dog sleeps.")[1]
    assert cli("translate", tiny_run, "--ensemble", tiny_run, "The dog sleeps.")[1] == alone


def test_progress_is_shown_to_a_person_and_to_nobody_else(tiny_run, source, tmp_path, cli):
    command = [sys.executable, "-m", "transformer_mt", "translate", str(tiny_run), "-i", str(source)]
    seen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    subprocess.run([*command, "-o", str(tmp_path / "out.txt")], stderr=terminal, cwd=ROOT, check=True)
    os.close(terminal)
    shown = b""
    with suppress(OSError):  # a terminal nobody has open any more
        while part := os.read(seen, 1 << 16):
            shown += part
    os.close(seen)
    assert re.search(rb"translating: +\d+%.* \d/5 ", shown)
    assert cli("translate", tiny_run, "-i", source)[2] == "line 2: there is nothing to translate\n"


@pytest.mark.parametrize(
    "words, message",
    [
        (["--align"], "--align requires --json, which shows it"),
        (["--resume"], "--resume requires --output FILE"),
        (
            ["--search", "mbr", "--samples", "4", "--length-penalty", "0.5"],
            "--length-penalty requires --search beam or sample",
        ),
        (["-o", "a.gz"], "--output must be the name of a text file, but is a.gz; compress it later"),
        (
            ["--resume", "-o", "x", "--n-best", "2"],
            "--resume requires one line of output per input line; with --n-best use --json",
        ),
        (["--prefix", "a", "--prefixes", "b"], "give --prefix or --prefixes, not both"),
        (["--prefixes", "no/file"], "no/file: no such file"),
        (["--protect", "("], "--protect must be a regular expression, but is '('"),
        (["--search", "sample", "--n-best", "2"], "--n-best must be at most --samples (1), but is 2"),
        (["--search", "mbr"], "--samples must be at least 2 with --search mbr, but is 1; 32 is usual"),
        (
            ["--min-length", "9", "--max-length", "3"],
            "--min-length must be at most --max-length (3), but is 9",
        ),
        (["--banned", " "], "--banned must hold words, but one of them is empty"),
        (["--seed", "3"], "--seed requires --search sample or mbr, but the search is beam"),
        (["--beam", "200000"], "--beam must be less than or equal to 1000"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(tiny_run, cli, words, message):
    status, out, err = cli("translate", tiny_run, "The dog sleeps.", *words)
    assert status == 2 and out == "" and message in err.strip().split("\n")[-1]


def test_what_score_says_is_what_translate_said(tiny_run, source, tmp_path, cli):
    translated = tmp_path / "out.jsonl"
    assert cli("translate", tiny_run, "-i", source, "--json", "-o", translated)[0] == 0
    rows = [json.loads(line) for line in translated.read_text(encoding="utf-8").split("\n") if line]
    status, out, err = cli("score", tiny_run, "--translations", translated, "--json")
    scored = [json.loads(line) for line in out.strip().split("\n")]
    assert status == 0 and "5 lines" in err
    for row, score in zip(rows, scored):
        if row["flags"] == ["empty"]:
            continue  # nothing was asked of the model
        assert score["log_prob"] == pytest.approx(row["log_prob"], abs=1e-3)
        assert score["score"] == pytest.approx(row["score"], abs=1e-4)
        assert len(score["token_log_probs"]) == len(score["tokens"]) + max(1, len(row["segments"]))
        assert sum(score["token_log_probs"]) == pytest.approx(score["log_prob"])


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "--source FILE and --target FILE must be given, or --translations FILE"),
        (
            ["--source", "SHORT", "--target", "SOURCE"],
            "must have as many lines as the other file, but ends at line 1",
        ),
        (["--translations", "SOURCE"], "in.txt:1: is not a line of JSON that translate wrote"),
        (
            ["--translations", "SOURCE", "--source", "SOURCE"],
            "give --translations, or --source and --target, not both",
        ),
    ],
)
def test_score_mistakes(tiny_run, source, tmp_path, cli, words, message):
    (tmp_path / "short.txt").write_text("x\n", encoding="utf-8")
    names = {"SHORT": tmp_path / "short.txt", "SOURCE": source}
    status, out, err = cli("score", tiny_run, *(names.get(word, word) for word in words))
    assert status == 2 and out == "" and message in err.strip().split("\n")[-1]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"tokens": ["no-such-piece"]}, "'no-such-piece' is not a token of this model"),
        ({"flags": ["protected_split"]}, "cannot be scored, because the text around protected text"),
        ({"source": 7}, "is not a line of JSON that translate wrote"),
        ({"segments": [{"source": "The dog.", "tokens": 2}]}, "is not a line of JSON that translate wrote"),
    ],
)
def test_translations_that_cannot_be_scored_are_told(tiny_run, tmp_path, cli, change, message):
    row = {"source": "The dog.", "translation": "Der", "tokens": ["▁Der"], "flags": [], **change}
    path = tmp_path / "odd.jsonl"
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    status, _, err = cli("score", tiny_run, "--translations", path)
    assert status == 2 and f"odd.jsonl:1: {message}" in err


def test_a_blank_line_has_the_same_score_as_when_it_was_translated(tiny_run, tmp_path, cli):
    path = tmp_path / "two.jsonl"
    row = {"translation": "", "tokens": [], "flags": ["empty"]}
    dog = {"source": "The dog.", "translation": "Der", "tokens": ["<0x44>"], "flags": []}
    text = "".join(json.dumps(each) + "\n" for each in (dog, {"source": "  ", **row}))
    path.write_text(text, encoding="utf-8")
    status, out, err = cli("score", tiny_run, "--translations", path, "--json")
    first, blank = map(json.loads, out.splitlines())
    assert status == 0 and blank["log_prob"] == 0.0 and first["log_prob"] < 0.0


def test_a_text_of_several_lines_is_refused(tiny_run, cli):
    """One argument made two lines of output."""
    status, out, err = cli("translate", tiny_run, "One.\nTwo.")
    assert status == 2 and out == "" and "TEXT must be one line, but has several; give each as a TEXT" in err


@pytest.mark.slow
def test_memory_stays_flat_on_a_long_input(tiny_run, tmp_path):
    """Ten times the lines take no more memory, up to what an allocator keeps."""
    code = (
        "import resource, sys\nfrom transformer_mt.cli import translate_main\n"
        f"translate_main([{str(tiny_run)!r}, '-o', '/dev/null', '--beam', '1'])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    peaks = []
    for count in (3000, 30_000):
        result = subprocess.run(
            [sys.executable, "-c", code], input=b"The dog sleeps.\n" * count, capture_output=True, cwd=ROOT
        )
        peaks.append(int(result.stdout))
    assert peaks[1] < peaks[0] + 60


@pytest.mark.slow
def test_a_student_is_distilled_and_measured(tiny_run, write_config, tmp_path, monkeypatch, cli):
    pytest.importorskip("ctranslate2")
    config = write_config("student.yaml", model={"num_decoder_layers": 1}, train={"max_updates": 40})
    words = ["distill", tiny_run, config, "name=student", "--out", tmp_path / "student"]
    first = cli(*words, cwd=tmp_path)
    assert first.status in (0, 1), first.err
    text = (tmp_path / "student/distillation.md").read_text(encoding="utf-8")
    table = "\n".join(" ".join(line.split()) for line in text.split("\n"))
    assert (
        table.startswith("| model | BLEU | chrF | MB | sentences/s |")
        and "| teacher |" in table
        and "| student |" in table
    )
    assert "\nbeam 5" in table and "; BLEU `nrefs:1" in table and "chrF `nrefs:1" in table
    pairs = (tmp_path / "student/distilled.jsonl").read_text(encoding="utf-8").strip().split("\n")
    assert 1450 < len(pairs) < 1500 and json.loads(pairs[0]).keys() == {"en", "de", "score"}
    if first.status:  # so small a student may not survive quantisation, and then it is said
        assert "it was not kept" in first.err and not (tmp_path / "student/int8").exists()
    else:
        assert "student, int8" in table and (tmp_path / "student/int8/model.bin").exists()
    again = cli(*words, cwd=tmp_path)
    assert "finished at update 40" in again.err and "distilled.jsonl: is done already" in again.err
    longer = cli(*words, "train.max_updates=48", cwd=tmp_path)
    # Exported anew, of the new weights
    assert "int8: " in longer.err and "distilled.jsonl: is done already" in longer.err
    (tmp_path / "student/distilled.jsonl.origin.json").write_text('{"model": "x"}\n', encoding="utf-8")
    other = cli(*words, cwd=tmp_path)
    assert other.status == 2 and "was made with another model" in other.err


def test_evaluate_prints_the_alignment_error_rate(tiny_run, tmp_path, cli):
    for name, line in (("a.en", "The dog sleeps."), ("a.de", "Der Hund sieht."), ("a.links", "0-0 1-1 2-2")):
        (tmp_path / name).write_text(f"{line}\n", encoding="utf-8")
    words = ["--source", tmp_path / "a.en", "--reference", tmp_path / "a.de", "--links", tmp_path / "a.links"]
    status, out, _ = cli("evaluate", tiny_run, *words)
    assert status == 0 and "  AER " in out and "of 1 pairs" in out
    status, _, err = cli("evaluate", tiny_run, "--links", tmp_path / "a.links")
    assert status == 2 and "--links requires one --source and --reference" in err


def test_a_file_in_the_place_of_a_text_is_asked_about(tiny_run, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.docx").write_bytes(b"x")
    status, out, err = cli("translate", tiny_run, "in.docx")
    assert (status, out) == (2, "")
    assert err == "TEXT must be a text, but in.docx is a file; give it as --input in.docx\n"


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_lines_end_as_those_of_the_file_do(tiny_run, tmp_path, cli, end):
    (tmp_path / "a.txt").write_bytes(end.join([b"The dog sleeps.", b"", b"A cat sings."]) + end)
    assert cli("translate", tiny_run, "-i", tmp_path / "a.txt", "-o", tmp_path / "b.txt")[0] == 0
    written = (tmp_path / "b.txt").read_bytes()
    assert written.count(b"\n") == 3 and written.count(b"\r\n") == 3 * (end == b"\r\n")


# A run made by an earlier version keeps translating as it did: never make its files anew to please a
# change.


GOLDEN = ROOT / "tests" / "golden"


def test_an_old_run_translates_as_it_did():
    source, translations = (
        (GOLDEN / name).read_text(encoding="utf-8").splitlines()
        for name in ("source.txt", "translations.txt")
    )
    results = Translator.load(GOLDEN / "run", device="cpu").translate(source)
    assert [result.translation for result in results] == translations


def test_an_old_run_that_says_nothing_of_sentences_splits_them():
    assert "split_sentences" not in (GOLDEN / "run" / "config.yaml").read_text(encoding="utf-8")
    (result,) = Translator.load(GOLDEN / "run", device="cpu").translate(["The dog sleeps. A cat sings."])
    assert [segment["source"] for segment in result.segments] == ["The dog sleeps.", "A cat sings."]


# Pairs of search options: what the user gives stands; rules and lengths hold for what follows.


OPTION_LINES = ["The dog sleeps.", "A cat sings and the small child reads a book."]
PREFIXES = ["der der Hund", "Eine Katze"]
OPTIONS = {
    "prefix": {}, "n_best": {}, "align": {}, "retry": {}, "protect": {},
    "no_repeat": {"no_repeat_ngram": 1}, "banned": {"banned": ["der", "Katze"]},
    "min_length": {"min_length": 7}, "max_length": {"max_length": 9}, "penalty": {"length_penalty": 0.0},
    "early": {"stop_early": True}, "greedy": {"beam": 1}, "whole": {"split_sentences": False},
    "sample": {"search": "sample", "samples": 4}, "mbr": {"search": "mbr", "samples": 4},
}  # fmt: skip


# Two options that every other one has to do with; each of all pairs ran through the same lines.
PAIRS = [pair for pair in combinations(OPTIONS, 2) if {"prefix", "n_best"} & {*pair}]
PAIRS.remove(("n_best", "greedy"))  # refused, as other tests say


@pytest.mark.parametrize("pair", [*PAIRS, ("protect", "retry"), ("min_length", "banned")], ids="-".join)
def test_each_pair_of_options_keeps_its_promises(tiny_run, pair):
    settings = {key: value for name in pair for key, value in OPTIONS[name].items()}
    translator = Translator.load(tiny_run, device="cpu", engine="torch", decode=settings)
    given = PREFIXES if "prefix" in pair else None
    options = {"n_best": 2 if "n_best" in pair else 1, "align": "align" in pair, "retry": "retry" in pair}
    protect = r"\bdog\b" if "protect" in pair else None
    results = translator.translate(OPTION_LINES, prefixes=given, protect=protect, **options)
    assert len(results) == len(OPTION_LINES) and [result.source for result in results] == OPTION_LINES
    for result, prefix in zip(results, given or ["", ""]):
        for candidate in result.n_best:
            assert candidate.translation.startswith(prefix) and candidate.translation
            written = len(candidate.tokens) - len(translator.tokenizer.encode_tgt([prefix])[0])
            if "protect" not in pair:
                assert settings.get("min_length", 0) <= written <= settings.get("max_length", 99)
            follows = candidate.translation[len(prefix) :]
            assert "banned" not in pair or not {"der", "Katze"} & set(follows.split()) or not follows
