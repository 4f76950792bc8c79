"""A language model behind a server as the teacher of backtranslate and distill."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from email.utils import formatdate
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT, TINY
from tests.helpers.chat_server import chat_server
from tests.helpers.command import WarmProcess
from tests.helpers.faults import students_measured_here
from transformer_mt import Translator
from transformer_mt.companion import companions
from transformer_mt.companions.lab.synthetic import TextSource
from transformer_mt.companions.teacher import asking
from transformer_mt.companions.teacher.language_model import RunScores
from transformer_mt.config import load_config
from transformer_mt.corpora import toy
from transformer_mt.evaluation.set_evaluation import SystemRecord
from transformer_mt.files import read_objects
from transformer_mt.run_folder import RunFolder, makers_of

PAIRS = dict(list(toy.generate("train", 400))[:24])
ENGLISH = list(PAIRS)
COMMAND = ("backtranslate", "teacher.yaml", "text", "-o", "out.jsonl", "--from", "en", "--to", "de")


@pytest.fixture
def server(monkeypatch):
    """A server that knows the translations; waits between tries are short."""
    waits = []

    async def wait_for(what, seconds, original=asking.asyncio.wait_for):
        waits.append(seconds)
        await original(what, min(seconds, 0.01))

    monkeypatch.setattr(asking.asyncio, "wait_for", wait_for)
    with chat_server(lambda line: PAIRS.get(line, line)) as server:
        server.waits = waits
        yield server


@pytest.fixture
def teach(server, tmp_path, cli):
    """Writes teacher.yaml with these keys, and runs the command."""

    def run(*words, **keys):
        values = {"endpoint": server.address, "model": "some-model", "parallel": 4, **keys}
        (tmp_path / "teacher.yaml").write_text(yaml.safe_dump({"teacher": values}), encoding="utf-8")
        if not (tmp_path / "text").exists():
            (tmp_path / "text").write_text("".join(f"{line}\n" for line in ENGLISH), encoding="utf-8")
        return cli(*(words or COMMAND))

    return run


def rows(file="out.jsonl"):
    return {row["en"]: row["de"] for row in read_objects(Path(file))}


def receipt(file="out.receipt.json"):
    with open(file, encoding="utf-8") as text:
        return json.load(text)


@pytest.mark.parametrize("lines", [1, 5])
def test_lines_become_a_corpus(teach, server, lines):
    result = teach(lines=lines)
    assert result.status == 0, result.err
    assert rows() == PAIRS and f"kept {len(PAIRS)}" in result.err
    assert "translates 24 lines: at least" in result.err and "may know public test sets" in result.err
    assert sorted(server.lines) == sorted(ENGLISH) and len(server.asked) == -(-24 // lines)
    assert server.most_at_once <= 4
    facts = receipt()
    assert facts["model"] == "some-model" and facts["share_kept"] == 1
    assert all("{text}" in text for text in facts["prompts"])
    assert facts["requests"] == len(server.asked) and facts["first"] <= facts["last"]
    num_words = sum(len(body["messages"][0]["content"].split()) for body in server.asked)
    assert facts["prompt_tokens"] == num_words and facts["money"] is None
    assert teach(lines=lines).err == "out.jsonl: is done already\n" and len(server.asked) == -(-24 // lines)


def test_what_is_no_translation_is_asked_for_once_more_alone_and_then_dropped(teach, server):
    """A line that another answer helps, and three that nothing helps."""
    answers = dict(PAIRS)
    refused, copied, chatty = ENGLISH[3], ENGLISH[7], ENGLISH[11]
    bad = {
        refused: "I'm sorry, but I can't help with that.", copied: copied, chatty: "Sure, the translation:",
        ENGLISH[15]: "**Der Hund**",
    }  # fmt: skip
    answers.update(bad)

    def translate(line):
        count = server.lines.count(line)
        return PAIRS[line] if line == ENGLISH[15] and count > 1 else answers[line]

    server.translate = translate
    result = teach(lines=6)
    assert result.status == 0
    left_out = {refused, copied, chatty}
    assert rows() == {source: target for source, target in PAIRS.items() if source not in left_out}
    assert "chatter 2, copy 1, kept 21" in result.err
    counts = Counter(server.lines)
    assert {line for line, count in counts.items() if count == 2} == {*left_out, ENGLISH[15]}
    assert receipt()["lines"] == {"read": 24, "chatter": 2, "copy": 1, "kept": 21}


def test_a_request_whose_lines_cannot_be_told_apart_is_made_line_by_line(teach, server):
    server.wrap = lambda text: text.replace("\n2. ", " ") if text.startswith("1. ") else text
    result = teach(lines=6)
    assert result.status == 0 and rows() == PAIRS
    assert len(server.asked) == 4 + 24


@pytest.mark.parametrize("fault", [503, "broken", "cut", "error", "endless"])
def test_faults_of_a_server_are_waited_out(teach, server, fault):
    server.faults = [fault, 503]
    result = teach(lines=24, timeout=1.0)
    assert result.status == 0 and rows() == PAIRS, result.err
    assert len(server.asked) == 3 and receipt()["requests"] == 1
    assert 0.5 <= server.waits[0] <= 1 <= server.waits[1] <= 2


def test_the_wait_is_the_servers(teach, server):
    date = formatdate(time.time() + 30, usegmt=True)
    server.faults = [(429, {"Retry-After": "7"}), (503, {"Retry-After": date})]
    assert teach(lines=24).status == 0
    assert server.waits[0] == 7 and 20 < server.waits[1] <= 30


@pytest.mark.parametrize("faults", [[503] * 8, [(429, {"Retry-After": "9000"})]])
def test_a_server_that_stays_silent_ends_the_work_and_nothing_is_lost(teach, server, faults):
    server.faults = [None] * 3 + faults
    result = teach(lines=4, parallel=1)
    assert result.status == 1 and "run the same command to resume" in result.err
    assert f"({faults[0] if faults[0] == 503 else 429}: status" in result.err
    assert teach(lines=4, parallel=1).status == 0 and rows() == PAIRS
    assert Counter(server.lines).most_common(1)[0][1] <= 1 + len(faults)
    assert all(server.lines.count(line) == 1 for line in ENGLISH[:12])


@pytest.mark.parametrize("fault, reason", [("length", "truncated"), ("content_filter", "refused")])
def test_an_answer_that_the_server_breaks_off_is_dropped(teach, server, fault, reason):
    server.faults_of = {ENGLISH[1]: fault}
    result = teach(parallel=1)
    assert result.status == 0 and f"{reason} 1, kept 23" in result.err
    assert rows() == {source: PAIRS[source] for source in ENGLISH if source != ENGLISH[1]}


def test_a_killed_command_asks_for_no_line_twice(teach, server, tmp_path):
    def slowly(line):
        time.sleep(0.05)
        return PAIRS[line]

    server.translate = slowly
    teach("backtranslate", "--help")  # only writes the files
    process = WarmProcess(COMMAND)
    while len(server.asked) < 13:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not Path("out.jsonl").exists()
    time.sleep(0.2)
    assert teach().status == 0 and rows() == PAIRS
    twice = [line for line, count in Counter(server.lines).items() if count > 1]
    assert len(twice) <= 4  # those that were on the way


def test_an_interrupted_command_ends_at_once(teach, server):
    server.faults = [(429, {"Retry-After": "500"})] * 24
    teach("backtranslate", "--help")
    command = [sys.executable, "-m", "transformer_mt", *COMMAND]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE)
    while len(server.asked) < 4:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=200)  # the server has asked for 500 seconds
    assert b"Traceback" not in err and process.returncode == 130


@pytest.mark.parametrize("limit", [{"requests": 3}, {"tokens": 400}, {"money": 0.0006}])
def test_a_limit_ends_the_work_which_goes_on_when_it_is_raised(teach, server, limit):
    price = {"input": 1.0, "output": 3.0}
    result = teach(lines=4, limit=limit, price=price)
    (name,) = limit
    assert result.status == 1
    assert f"note: teacher.limit.{name} will probably be reached before the end" in result.err
    assert f"teacher.limit.{name} is reached, and all answers are kept: raise it and run" in result.err
    sent = len(server.lines)
    assert 0 < sent < 24 and not Path("out.jsonl").exists()
    # With the lines that are there:
    result = teach(lines=4, limit={**limit, "enough": True}, price=price)
    sent = len(server.lines)
    assert result.status == 0 and f"limit {24 - sent}, kept {sent}" in result.err
    facts = receipt()
    spent = {"requests": facts["requests"], "money": facts["money"]}
    spent["tokens"] = facts["prompt_tokens"] + facts["answer_tokens"]
    assert 0.4 * limit[name] < spent[name] <= limit[name] and (name != "requests" or sent == 12)
    assert facts["money"] == pytest.approx((facts["prompt_tokens"] + 3 * facts["answer_tokens"]) / 1e6)
    # With a higher one the rest is sent, and the rest alone.
    result = teach(lines=4, price=price)
    assert result.status == 2 and "was made with another limit; remove it" in result.err
    Path("out.jsonl").unlink()
    assert teach(lines=4, price=price).status == 0 and rows() == PAIRS
    assert sorted(server.lines) == sorted(ENGLISH)


def test_a_limit_counts_tries_that_failed_in_all_commands(teach, server):
    server.faults = [503] * 6
    limit = {"requests": 5}
    assert teach(lines=24, limit=limit, parallel=1).status == 1 and len(server.asked) == 5
    assert teach(lines=24, limit=limit).status == 1 and len(server.asked) == 5
    limit = {"requests": 7}
    assert teach(lines=24, limit=limit).status == 0 and rows() == PAIRS


def test_a_second_question_counts_as_a_whole_request(teach, server):
    server.translate = lambda line: "**" + PAIRS[line]
    assert teach(lines=24, limit={"requests": 3}, parallel=1).status == 1 and len(server.asked) == 3
    # A limit between the two questions about a line takes neither.
    server.translate = PAIRS.get
    assert teach(lines=24).status == 0 and len(rows()) == 22 and len(server.asked) == 25


def test_dear_answers_lower_the_number_that_is_on_the_way(teach, server):
    server.tokens = 500
    result = teach(limit={"tokens": 4000, "enough": True}, parallel=2)
    facts = receipt()
    assert result.status == 0 and facts["prompt_tokens"] + facts["answer_tokens"] <= 4500


def test_a_line_that_no_server_likes_does_not_stop_the_others(teach, server):
    """Neither at the beginning, where it is not known that others are taken, nor later."""
    server.faults_of = {ENGLISH[0]: 400, ENGLISH[10]: 500, ENGLISH[11]: 403}
    result = teach(parallel=2)
    assert result.status == 0 and "no answer 1, not taken 2, kept 21" in result.err
    assert receipt()["endpoints"] == [server.address]
    num_requests = len(server.asked)
    assert teach(*COMMAND[:4], "other.jsonl", *COMMAND[5:]).status == 0 and len(server.asked) == num_requests


def test_what_is_on_the_way_is_kept_when_another_question_ends_the_work(teach, server):
    def slowly(line):
        time.sleep(0.3)
        return PAIRS[line]

    server.translate = slowly
    server.faults_of = {ENGLISH[2]: 404}
    result = teach(parallel=8)
    assert result.status == 2 and len(server.asked) == 8
    server.translate, server.faults_of = PAIRS.get, {}
    assert teach(parallel=8).status == 0 and len(server.asked) == 8 + 17


def test_a_server_that_is_slower_than_the_requests_is_waited_for(teach, server):
    """Each question meets more refusals than it has tries, but others are answered meanwhile."""
    server.faults = ([429] * 8 + [None]) * 10
    result = teach(parallel=8)
    assert result.status == 0 and rows() == PAIRS
    assert result.err.count("note: the server does not answer (429: status 429 on purpose)") == 1


def test_a_server_that_takes_no_request_says_why(teach, server):
    server.faults_of = dict.fromkeys(ENGLISH, 400)
    server.message = "max_tokens must be at most 100"
    result = teach(parallel=2)
    assert result.status == 2 and len(server.asked) < 8
    assert "must take the requests, but answers 400: max_tokens must be at most 100; check" in result.err
    server.faults_of = {}  # its own settings were changed
    assert teach(parallel=2).status == 0 and rows() == PAIRS


def test_an_answer_is_used_again_where_nothing_that_it_depends_on_has_changed(teach, server, tmp_path):
    (tmp_path / "terms.tsv").write_text(f"{ENGLISH[0].split()[1]}\tWORT\n", encoding="utf-8")
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in ENGLISH[:4]), encoding="utf-8")
    assert teach(checks=["markup"]).status == 0 and len(server.asked) == 4
    changes = [
        {"lines": 5, "parallel": 1, "checks": []},
        {"model": "another"},
        {"parameters": {"temperature": 1}},
        {"prompt": "Into {target}, please:\n\n{text}"},
        {"glossary": "terms.tsv"},
        {"to": "nl"},
        {"candidates": 2, "metric": "cat"},
    ]
    for number, change in enumerate(changes):
        asked, to = len(server.asked), change.pop("to", "de")
        words = [*COMMAND[:4], f"{number}.jsonl", *COMMAND[5:7], "--to", to]
        teach(*words, **{"checks": ["markup"], **change})
        assert (len(server.asked) > asked) == (number > 0), change


def test_two_commands_do_not_share_a_file_of_answers(teach, server, tmp_path):
    from transformer_mt.companions.teacher.answers import Answers

    teach("backtranslate", "--help")
    code = "import sys; from pathlib import Path; from transformer_mt.companions.teacher import answers\n"
    code += "a = answers.Answers(Path('teacher.answers.sqlite')); print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        result = teach()
        assert result.status == 1 and not server.asked
        assert "teacher.answers.sqlite: must be free, but another command uses it" in result.err
        other.stdin.close()
    assert teach().status == 0
    Answers(tmp_path / "teacher.answers.sqlite").close()  # and it is free after a command in this process


def test_redirects_are_not_followed(teach, server):
    server.faults_of = dict.fromkeys(ENGLISH, (307, {"Location": f"{server.address}/chat/completions"}))
    result = teach()
    assert result.status == 2 and "must take the requests, but answers 307" in result.err


def test_an_answer_with_half_a_character_or_without_end_is_no_traceback(teach, server):
    server.translate = lambda line: "Der \ud83d Hund." if line == ENGLISH[0] else PAIRS.get(line, line)
    server.wrap = lambda text: "x" * (5 << 20) if text == PAIRS[ENGLISH[1]] else text
    result = teach()
    assert result.status == 0 and "no answer 1" in result.err and rows()[ENGLISH[0]] == "Der ? Hund."


def test_without_usage_tokens_are_estimated(teach, server):
    server.has_usage = False
    assert teach(lines=4).status == 0
    assert 200 < receipt()["answer_tokens"] < 500 < receipt()["prompt_tokens"] < 1500


def test_the_key_comes_from_the_environment_and_is_never_written(teach, server, monkeypatch, tmp_path):
    monkeypatch.setenv("SOME_KEY", "sk-secret-word")
    server.faults = [(503, {})]
    assert teach(key="SOME_KEY").status == 0
    assert server.keys == {"Bearer sk-secret-word"}
    texts = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert texts and not any(b"secret" in text for text in texts)
    monkeypatch.delenv("SOME_KEY")
    result = teach(key="SOME_KEY")
    assert result.status == 2
    assert "the environment variable SOME_KEY, which teacher.key names, must hold the key" in result.err


METRIC = """
import json, sys
for line in sys.stdin:
    if line.strip():
        print(len(json.loads(line)["translation"]), flush=True)
"""


def test_the_best_candidate_by_a_metric_is_kept(teach, server, tmp_path):
    (tmp_path / "longest.py").write_text(METRIC)
    numbers = iter(range(1000))

    def translate(line):
        return PAIRS[line] + " Ja" * (next(numbers) % 3)

    server.translate = translate
    result = teach(candidates=3, metric=f"{sys.executable} longest.py", lines=1, parallel=1)
    assert result.status == 0, result.err
    assert rows() == {source: f"{target} Ja Ja" for source, target in PAIRS.items()}
    assert [row["score"] for row in read_objects(Path("out.jsonl"))] == [len(t) + 6 for t in PAIRS.values()]
    assert len(server.asked) == 72
    # Another metric chooses anew among what was paid for.
    (tmp_path / "shortest.py").write_text(METRIC.replace("print(len", "print(-len"))
    Path("out.jsonl").unlink()
    Path("out.jsonl.origin.json").unlink()
    again = teach(candidates=3, metric=f"{sys.executable} shortest.py")
    assert again.status == 0 and rows() == PAIRS and len(server.asked) == 72
    assert "translates" not in again.err


def test_a_calibrated_run_scores_translations(teach, server, tiny_run, monkeypatch):
    assert "must be a run with calibration.json" in teach(metric=str(tiny_run)).err
    facts = {"intercept": 1.0, "slope": 0.5, "low": 0.1}
    shutil.copytree(tiny_run, "run")
    Path("run/calibration.json").write_text(json.dumps(facts))
    server.translate = lambda line: PAIRS[line] if server.lines.count(line) > 1 else "Das Haus heißt Haus."
    result = teach(*COMMAND, "--keep", "0.5", metric="run", candidates=2, parallel=1)
    assert result.status == 0, result.err
    scores = [row["score"] for row in read_objects(Path("out.jsonl"))]
    assert len(scores) == 12 and all(0 < score < 1 for score in scores) and "low score 12" in result.err
    pairs = [("word " * 500, "Wort"), (ENGLISH[0], PAIRS[ENGLISH[0]])]
    monkeypatch.setattr(Translator, "max_positions", 64)
    longer, usual = RunScores(Path("run"), ("en", "de")).of(pairs)
    assert longer == 0 < usual < 1
    assert "the share to keep must be 1 without teacher.metric" in teach(*COMMAND, "--keep", "0.5").err


@pytest.mark.parametrize(
    "keys, text_of_error",
    [
        ({"endpoint": "localhost:80"}, "`teacher.endpoint` must be an address such as http://localhost"),
        ({"endpoint": "http://me:word@host/v1"}, "`teacher.endpoint` must be an address"),
        ({"key": "sk-123"}, "must be the name of an environment variable, never the key itself"),
        ({"prompt": "{text} {targt}"}, "prompt must have no other names than text, source, target and terms"),
        ({"candidates": 2, "metric": "cat", "parameters": {"temperature": 0}}, "temperature must be above 0"),
        ({"candidates": 2}, "metric must choose among several candidates, but is not given"),
        ({"limit": {"money": 3}}, "price must be given with limit.money"),
        ({"prompt": "Translate!"}, "prompt must have {text}"),
        ({"prompt": "{text}", "glossary": "terms.tsv"}, "prompt must have {terms} with a glossary"),
        ({"parameters": {"n": 2}}, "parameters must not have n, which are set here"),
        ({"parameters": {"seed": float("inf")}}, "`teacher.parameters.seed` must be a finite number"),
        ({"checks": ["refusal"]}, "`teacher.checks.0` must be"),
        ({"metric": "no-such-program"}, "no-such-program: the program of teacher.metric is not installed"),
        ({"glossary": "no.tsv"}, "no.tsv: no such file"),
    ],
)  # fmt: skip
def test_mistakes_in_the_file_are_said_in_a_line(teach, server, keys, text_of_error):
    result = teach(**keys)
    assert result.status == 2 and text_of_error in result.err, result.err
    assert not server.asked


def test_mistakes_in_the_command_are_said_in_a_line(teach, server, tmp_path):
    words = COMMAND[:5]
    assert "--from and --to must name the languages of the text" in teach(*words).err
    assert "--beam must be left out with a language model" in teach(*COMMAND, "--beam", "2").err
    server.faults = [404] * 4
    assert "must take the requests, but answers 404: status 404" in teach().err
    result = teach(endpoint="http://127.0.0.1:9/v1")
    assert result.status == 1 and "does not answer (All connection attempts failed)" in result.err
    assert not server.waits  # it was never there
    (tmp_path / "read-only").mkdir()
    (tmp_path / "read-only/teacher.answers.sqlite").mkdir()
    (tmp_path / "read-only/teacher.yaml").write_bytes((tmp_path / "teacher.yaml").read_bytes())
    result = teach("backtranslate", "read-only/teacher.yaml", *COMMAND[2:])
    assert result.status == 1 and "teacher.answers.sqlite: cannot be used: unable to open" in result.err


def student(tmp_path, **data):
    values = {**TINY, "name": "student", "data": {**TINY["data"], **data}}
    (tmp_path / "student.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    return values


def test_a_student_learns_from_it(teach, server, tmp_path, monkeypatch):
    pytest.importorskip("ctranslate2")
    students_measured_here(monkeypatch)
    tested = [dict(toy.generate(split, size)) for split, size in (("valid", 40), ("test", 30))]
    held_out = [source for known in tested for source in known][:4]
    train = {**PAIRS, **{source: next(k[source] for k in tested if source in k) for source in held_out}}
    (tmp_path / "a.tsv").write_text("en\tde\n" + "".join(f"{e}\t{d}\n" for e, d in train.items()), "utf-8")
    student(tmp_path, train={"file": "a.tsv", "tag": "<lm>", "weight": 2.0})
    server.translate = {**train}.get
    short = ["tokenizer.vocab_size=330", "train.max_updates=2", "train.validate_every=2"]
    result = teach("distill", "teacher.yaml", "student.yaml", *short, "--out", "student", lines=4)
    assert rows("student/distilled.jsonl") == PAIRS
    # int8 can change the output of a tiny model too much, especially if int8 products saturate.
    assert result.status == ("was not kept" in result.err), result.err
    assert not set(server.lines) & set(held_out)
    config = load_config(tmp_path / "student/config.yaml")
    (corpus,) = config.data.entries
    assert (corpus.synthetic, corpus.tag, corpus.weight) == (True, "<lm>", 2.0)
    table = (tmp_path / "student/distillation.md").read_text()
    assert "student" in table and "teacher" not in table.partition("seen")[0]
    # What the language model has read is not known, so that no share of a student's is.
    assert makers_of(Path("student/distilled.jsonl"))[0].seen() is None
    assert not SystemRecord([RunFolder("student")]).is_complete
    assert receipt("student/distilled.receipt.json")["share_kept"] == 1


def test_a_chain_begins_with_it(teach, server, tmp_path):
    values = student(tmp_path)
    values["data"] = {**values["data"], "source_lang": "de", "target_lang": "en"}
    values["train"] = {**values["train"], "max_updates": 2, "validate_every": 2}
    (tmp_path / "forward.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    chain = {"backward": "teacher.yaml", "forward": "forward.yaml", "text": ["text"], "tag": "<bt>"}
    (tmp_path / "chain.yaml").write_text(yaml.safe_dump(chain), encoding="utf-8")
    result = teach("backtranslate", "chain.yaml", "--out", "chain")
    assert result.status == 0, result.err
    assert rows("chain/synthetic.jsonl") == PAIRS and (tmp_path / "chain/forward/model.safetensors").exists()
    (tmp_path / "chain.yaml").write_text(yaml.safe_dump({**chain, "decode": {"beam": 2}}), encoding="utf-8")
    assert (
        "decode must be left out if backward is a language model" in teach("backtranslate", "chain.yaml").err
    )


def test_no_side_of_a_validation_or_test_set_is_sent(write_config):
    source, reference = next(iter(toy.generate("test", 30)))
    text = TextSource(lambda: [source, reference.upper(), "Another."], "a hash")
    assert list(text.without_sets(load_config(write_config()).data).read()) == ["Another."]


def test_other_checks_make_another_corpus_of_the_same_answers(teach, server):
    server.translate = lambda line: "**" + PAIRS[line] if line == ENGLISH[0] else PAIRS[line]
    assert teach().status == 0 and len(rows()) == 23
    assert "was made with another set of checks; remove it" in teach(checks=["copy"]).err
    Path("out.jsonl").unlink()
    num_requests = len(server.asked)
    assert teach(checks=["copy"]).status == 0 and len(rows()) == 24 and len(server.asked) == num_requests


def test_what_is_too_long_for_a_sentence_is_not_sent(teach, server, tmp_path):
    (tmp_path / "text").write_text(f"{ENGLISH[0]}\n{'word ' * 500}\n", encoding="utf-8")
    assert "over-long 1, kept 1" in teach().err and len(server.asked) == 1


def test_a_teacher_without_its_companion(teach, tmp_path, monkeypatch):
    monkeypatch.delitem(companions(), "teacher")
    student(tmp_path)
    result = teach("distill", "teacher.yaml", "student.yaml")
    assert result.status == 2 and "teacher.yaml: must be the folder of a run, or a YAML" in result.err
