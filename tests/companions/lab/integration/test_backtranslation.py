"""Monolingual text to a training corpus; and the whole chain from one file."""

import gzip
import json
import shutil
import sys

import pytest
import yaml

from tests.conftest import TINY
from tests.helpers.faults import translated_at_a_time
from transformer_mt import Translator
from transformer_mt.companions.lab import synthetic
from transformer_mt.companions.lab.backtranslation_chain import run_chain
from transformer_mt.companions.lab.synthetic import (
    PairSelection,
    Runs,
    SyntheticCorpusTask,
    TextSource,
    make_corpus,
)
from transformer_mt.companions.lab.translated import record_origin
from transformer_mt.config import load_config
from transformer_mt.corpora import toy
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import read_objects
from transformer_mt.messages import messages_to
from transformer_mt.settings.corpus_keys import FilterConfig

ENGLISH = [english for english, _ in toy.generate("test", 40)]
ALL = PairSelection(FilterConfig())


def backtranslate(translator, models, texts, out, choice):
    return make_corpus(
        SyntheticCorpusTask(Runs(translator, models), TextSource.of_files(texts), False, choice), out
    )


class Watched(Runs):
    """Keeps the lines that it translates, and is stopped before some chunk of them."""

    def __init__(self, translator, models=(), chunks=None, **changes):
        super().__init__(translator, models)
        self.lines, self.chunks, self.changes = [], chunks, changes

    def rows(self, lines):
        if self.chunks == 0:
            raise KeyboardInterrupt
        self.chunks = None if self.chunks is None else self.chunks - 1
        self.lines += lines
        return (row | self.changes for row in super().rows(lines))


def made_by(teacher, text, out, choice=ALL):
    return make_corpus(SyntheticCorpusTask(teacher, TextSource.of_files([text]), False, choice), out)


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "mono.en"
    file.write_text("\n".join(ENGLISH) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def translator(tiny_run):
    """It was trained for a moment: its translations repeat themselves."""
    return Translator.load(tiny_run, "cpu", decode={"no_repeat_ngram": 2})


def test_the_corpus_has_the_text_with_the_models_translations(translator, tiny_run, text, tmp_path):
    out = tmp_path / "synthetic.jsonl"
    text.write_text("\n".join([*ENGLISH[:20], "", *ENGLISH[10:30], " ", "word " * 100, *ENGLISH[:5]]) + "\n")
    counts = backtranslate(translator, [tiny_run], [text], out, ALL)
    expected = {result.source: result.translation for result in translator.translate(ENGLISH[:30])}
    rows = read_objects(out)
    assert {row["en"]: row["de"] for row in rows}.items() <= expected.items()
    order = [row["en"] for row in rows]
    assert order == sorted(order, key=ENGLISH.index) and len(set(order)) == len(order)
    wrong = sum(counts[name] for name in synthetic.REJECTED_FLAGS)
    assert counts["read"] == 48 and counts["empty"] == 2 and counts["repeated"] == 15
    assert counts["over-long"] == 1 and counts["kept"] == len(rows) == 30 - wrong > 0


def test_a_line_that_cannot_be_read_is_found_before_any_translation(translator, tiny_run, text, tmp_path):
    text.write_bytes(text.read_bytes() * 50 + b"\xff\n")
    with pytest.raises(InputError, match=r"mono.en:2001: must be UTF-8"):
        backtranslate(translator, [tiny_run], [text], tmp_path / "out.jsonl", ALL)
    assert not list(tmp_path.glob(".out*"))


def test_the_share_with_the_best_scores_is_kept(translator, tiny_run, text, tmp_path):
    whole, half = tmp_path / "whole.jsonl", tmp_path / "half.jsonl"
    backtranslate(translator, [tiny_run], [text], whole, ALL)
    counts = backtranslate(translator, [tiny_run], [text], half, PairSelection(FilterConfig(), 0.5))
    rows, kept = read_objects(whole), read_objects(half)
    assert abs(len(kept) - len(rows) / 2) <= 1 and counts["low score"] == len(rows) - len(kept)
    assert min(row["score"] for row in kept) >= sorted(row["score"] for row in rows)[len(rows) // 2 - 1]


def test_the_cleaning_rules_judge_the_pairs(tmp_path, text, translator):
    translations = [
        {"en": "A dog sleeps.", "de": "Ein Hund schläft.", "score": -1.0, "flags": []},
        {"en": "A dog sleeps now.", "de": "A dog sleeps now", "score": -1.0, "flags": []},
        {"en": "In 1984 dogs slept.", "de": "1985 schliefen Hunde.", "score": -1.0, "flags": []},
        {"en": "Dogs.", "de": "Hunde Hunde Hunde Hunde", "score": -1.0, "flags": ["repeating"]},
    ]

    class Given(Runs):
        def rows(self, lines):
            return iter(translations)

    text.write_text("".join(f"{row['en']}\n" for row in translations), encoding="utf-8")
    out = tmp_path / "synthetic.jsonl"
    choice = PairSelection(FilterConfig(copy=True, numbers=True))
    counts = made_by(Given(translator, []), text, out, choice)
    assert [row["en"] for row in read_objects(out)] == ["A dog sleeps."]
    assert (counts["copy"], counts["numbers"], counts["repeating"]) == (1, 1, 1)


@pytest.mark.parametrize("chunks", [0, 2])
def test_an_interrupted_translation_is_resumed(translator, tiny_run, text, tmp_path, monkeypatch, chunks):
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    first = Watched(translator, [tiny_run])
    made_by(first, text, whole)
    translated_at_a_time(monkeypatch, 15)
    with pytest.raises(KeyboardInterrupt):
        made_by(Watched(translator, [tiny_run], chunks), text, cut)
    assert not cut.exists()
    with (tmp_path / ".cut.jsonl.part").open("a") as part:
        part.write('{"de": "half a li')  # as kill -9 may leave it
    second = Watched(translator, [tiny_run])
    made_by(second, text, cut)
    assert cut.read_bytes() == whole.read_bytes() and second.lines == first.lines[15 * chunks :]
    assert not (tmp_path / ".cut.jsonl.part").exists()


def test_what_is_done_is_not_done_again_and_never_mixed(translator, tiny_run, text, tmp_path):
    out = tmp_path / "synthetic.jsonl"
    backtranslate(translator, [tiny_run], [text], out, ALL)
    before = out.read_bytes()
    assert made_by(Watched(translator, [tiny_run], 0), text, out) == {}
    with pytest.raises(InputError, match="was made with another choice; remove it, or name another `out`"):
        backtranslate(translator, [tiny_run], [text], out, PairSelection(FilterConfig(), 0.5))
    text.write_text("Another text.\n")
    with pytest.raises(InputError, match="was made with another text"):
        backtranslate(translator, [tiny_run], [text], out, ALL)
    assert out.read_bytes() == before


def test_a_file_of_the_users_own_is_not_to_be_removed(translator, tiny_run, text, tmp_path):
    own = tmp_path / "own.jsonl"
    own.write_text("mine\n")
    with pytest.raises(InputError, match="own.jsonl: must be a file that this command made, but own"):
        backtranslate(translator, [tiny_run], [text], own, ALL)
    assert own.read_text() == "mine\n"


def test_other_rules_clean_again_what_is_translated(translator, tiny_run, text, tmp_path):
    out = tmp_path / "synthetic.jsonl"
    nothing = PairSelection(FilterConfig(), flags=("long", *synthetic.REJECTED_FLAGS))
    with pytest.raises(WorkError, match="synthetic.jsonl: no translation is left after cleaning"):
        made_by(Watched(translator, [tiny_run], flags=["long"]), text, out, nothing)
    counts = made_by(Watched(translator, [tiny_run], 0), text, out)
    assert counts["kept"] == len(read_objects(out)) > 0
    with pytest.raises(InputError, match="was made with another choice"):
        backtranslate(translator, [tiny_run], [text], out, nothing)


def test_what_was_begun_in_another_precision_is_not_continued(
    translator, tiny_run, text, tmp_path, monkeypatch
):
    translated_at_a_time(monkeypatch, 15)
    with pytest.raises(KeyboardInterrupt):
        made_by(Watched(translator, [tiny_run], 1), text, tmp_path / "x.jsonl")
    other = Translator.load(tiny_run, "cpu", "bfloat16", decode={"no_repeat_ngram": 2})
    with pytest.raises(InputError, match=r"\.x\.jsonl\.part: was made with another engine; remove it"):
        backtranslate(other, [tiny_run], [text], tmp_path / "x.jsonl", ALL)


def test_other_lines_are_not_continued(translator, tiny_run, text, tmp_path):
    """As an earlier version may have left them, which chose other lines of the same text."""
    part = tmp_path / ".x.jsonl.part"
    part.write_text('{"de": "x", "en": "Another line.", "score": 0.0, "flags": []}\n')
    task = SyntheticCorpusTask(Runs(translator, [tiny_run]), TextSource.of_files([text]), False, ALL)
    facts = task.facts()
    record_origin(tmp_path / "x.jsonl.origin.json", facts)
    with pytest.raises(InputError, match="must hold translations of these lines, but has another at"):
        backtranslate(translator, [tiny_run], [text], tmp_path / "x.jsonl", ALL)


def test_an_extra_that_is_missing_is_said_before_any_work(translator, tiny_run, text, tmp_path, monkeypatch):
    from transformer_mt.text import languages

    languages._model.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(InputError, match="py3langid, which identifies languages, is not installed"):
        choice = PairSelection(FilterConfig(language=True))
        made_by(Watched(translator, [tiny_run], 0), text, tmp_path / "x.jsonl", choice)
    languages._model.cache_clear()


def test_the_command(tiny_run, text, tmp_path, cli):
    words = ["backtranslate", tiny_run, text, "-o", "out.jsonl", "--search", "sample", "--samples", "1"]
    result = cli(*words, "--filter", "copy", "--no-repeat-ngram", "2")
    assert result.status == 0, result.err
    rows = read_objects(tmp_path / "out.jsonl")
    assert set(rows[0]) == {"de", "en", "score"} and f"kept {len(rows)}" in result.err
    result = cli(*words, "--seed", "2", "--filter", "copy", "--no-repeat-ngram", "2")
    assert result.status == 2
    assert "another search; remove it, or name another --out" in result.err


@pytest.mark.parametrize(
    "words, text_of_error",
    [
        (["RUN"], "give MODEL, at least one TEXT and --out FILE; or a YAML file"),
        (["RUN", "TEXT", "-o", "x.txt"], "--out must be a file that ends in .jsonl, but is x.txt"),
        (["RUN", "no.txt", "-o", "x.jsonl"], "no.txt: no such file"),
        (["RUN", "TEXT", "-o", "x.jsonl", "--keep", "0"], "--keep must be above 0 and at most 1, but is 0"),
        (["RUN", "TEXT", "-o", "x.jsonl", "--filter", "copies"], "--filter must be of copy, script"),
        (["RUN", "EMPTY", "-o", "x.jsonl"], "the text must have lines, but is empty"),
        (["RUN", "TEXT", "-o", "/proc/x.jsonl"], "/proc/x.jsonl: cannot be written: "),
        (["no.yaml", "TEXT"], "no.yaml: no such config file"),
        (["chain.yaml", "TEXT"], "with the YAML file of a chain the texts must be named in it, but TEXT is"),
    ],
)
def test_mistakes_are_said_in_a_line(tiny_run, text, tmp_path, words, text_of_error, cli):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "chain.yaml").write_text("backward: a.yaml\n")
    places = {"RUN": tiny_run, "TEXT": text, "EMPTY": "empty.txt"}
    result = cli("backtranslate", *(places.get(word, word) for word in words))
    assert result.status == 2 and text_of_error in result.err


@pytest.fixture
def chain(tmp_path, text):
    """The file of a chain from German to English; the backward model translates English to German."""
    short = {**TINY["train"], "max_updates": 4, "validate_every": 2, "save_every": 2}
    backward = {**TINY, "name": "en_de", "train": short}
    swapped = {**TINY["data"], "source_lang": "de", "target_lang": "en"}
    forward = {**TINY, "name": "de_en", "train": short, "data": swapped}
    values = {"backward": "en_de.yaml", "forward": "de_en.yaml", "text": [str(text)], "tag": "<bt>"}
    values["decode"] = {"no_repeat_ngram": 1}
    for name, content in (("en_de", backward), ("de_en", forward), ("chain", values)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return tmp_path / "chain.yaml"


def change(file, **values):
    """Other values in a YAML file; those of its sections are added to them."""
    old = yaml.safe_load(file.read_text())
    for key, value in values.items():
        old[key] = {**old.get(key, {}), **value} if isinstance(value, dict) else value
    file.write_text(yaml.safe_dump(old))


def test_a_chain_is_resumed_ends_the_same_and_follows_its_backward_model(chain, tmp_path, said):
    backward = tmp_path / "en_de.yaml"
    change(backward, train={"monitor": "loss"})  # more updates make a better model by it
    folder = run_chain(chain, tmp_path / "chain")
    assert folder == tmp_path / "chain" / "forward"
    config = load_config(folder / "config.yaml")
    assert [entry.tag for entry in config.data.entries] == [None, "<bt>"]
    assert [entry.synthetic for entry in config.data.entries] == [False, True]
    names = [corpus["name"] for corpus in json.loads((folder / "data.json").read_text())]
    assert names == ["toy train", "synthetic"]
    models = [folder.parent / name / "model.safetensors" for name in ("backward", "forward")]
    before = [(file.stat().st_mtime_ns, file.read_bytes()) for file in models]
    said.clear()
    run_chain(chain, tmp_path / "chain")
    assert [(file.stat().st_mtime_ns, file.read_bytes()) for file in models] == before
    assert any("is done already" in line for line in said)

    def interrupted(message):
        if " translates, " in message:
            raise KeyboardInterrupt

    change(chain, backward=str(folder.parent / "backward"))
    with messages_to(interrupted), pytest.raises(KeyboardInterrupt):
        run_chain(chain, tmp_path / "cut")
    cut = run_chain(chain, tmp_path / "cut")
    assert (cut / "model.safetensors").read_bytes() == models[1].read_bytes()
    change(chain, backward=str(backward))

    pairs = tmp_path / "chain" / "synthetic.jsonl"
    first_pairs = pairs.read_bytes()
    change(backward, train={"max_updates": 10})
    said.clear()
    assert run_chain(chain, tmp_path / "chain") == folder
    assert any("was made with another model; that is now synthetic.jsonl.old-1" in line for line in said)
    assert (tmp_path / "chain" / "synthetic.jsonl.old-1").read_bytes() == first_pairs
    if pairs.read_bytes() != first_pairs:
        assert any("was trained on other synthetic pairs, so it is moved to" in line for line in said)
        assert len(list((tmp_path / "chain").glob("forward.old-*"))) == 1
    said.clear()
    run_chain(chain, tmp_path / "chain")
    assert not any("that is now" in line for line in said)


def test_a_chain_takes_a_trained_backward_model_and_starts_over_where_asked(chain, tiny_run, tmp_path, cli):
    """The corpora may have names of their own: for the languages, and that of the synthetic one."""
    backward = shutil.copytree(tiny_run, tmp_path / "b")
    config = yaml.safe_load((backward / "config.yaml").read_text())
    config["data"]["train"] |= {"source_lang": "English", "target_lang": "German"}
    (backward / "config.yaml").write_text(yaml.safe_dump(config))
    change(chain, backward=str(backward))
    change(tmp_path / "de_en.yaml", data={"train": {**TINY["data"]["train"], "name": "synthetic"}})
    (tmp_path / "chain").mkdir()
    (tmp_path / "chain" / "mine.txt").touch()
    result = cli("backtranslate", chain, "--out", tmp_path / "chain", "--fresh")
    assert result.status == 0 and "the old folder is now" in result.err
    assert not any((tmp_path / "chain" / name).exists() for name in ("backward", "mine.txt"))
    assert any((path / "mine.txt").exists() for path in tmp_path.glob("chain.*"))
    names = [entry.name for entry in load_config(tmp_path / "chain/forward/config.yaml").data.entries]
    assert names == ["synthetic", "synthetic 2"]


@pytest.mark.long
def test_models_of_both_directions_translate_the_pairs_themselves(chain, tmp_path):
    """Each is trained once, and the forward model learns from all that they wrote."""
    teachers, student = {"train.max_updates": 8}, {"train.max_updates": 6, "model.dropout": 0.2}
    change(chain, text=[], tag=None, diversify=2, teachers=teachers, student=student)
    folder = run_chain(chain, tmp_path / "chain")
    names = [corpus["name"] for corpus in json.loads((folder / "data.json").read_text())]
    assert names == ["toy train", "backward-1", "forward-1", "backward-2", "forward-2"]
    configs = {name: load_config(folder.parent / name / "config.yaml") for name in names[1:]}
    assert [config.seed for config in configs.values()] == [1, 1, 2, 2]
    assert {config.train.max_updates for config in configs.values()} == {8}
    assert {config.model.dropout for config in configs.values()} == {0.1}
    student = load_config(folder / "config.yaml")
    assert (student.train.max_updates, student.model.dropout) == (6, 0.2)
    pairs = list(toy.generate("train", 1500))
    english, german = ({pair[side] for pair in pairs} for side in (0, 1))
    for name, original, column in (("backward-1", english, "en"), ("forward-2", german, "de")):
        rows = read_objects(folder.parent / f"{name}.jsonl")
        assert len(rows) > 20 and {row[column] for row in rows} <= original
    before = (folder / "model.safetensors").read_bytes()
    (folder.parent / "forward-2.jsonl").unlink()  # as if it had been killed there
    assert run_chain(chain, tmp_path / "chain") == folder
    assert (folder / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"text": []}, "text must name a file, or diversify be 1 or more"),
        ({"teachers": {"train.max_updates": 2}}, "teachers must be left out without diversify"),
        (
            {"diversify": 1, "teachers": {"train.max_update": 2}},
            "chain.yaml: teachers: `train.max_update` is not a key; did you mean",
        ),
        (
            {"student": {"train.guided_alignment": {"weight": 0.1, "file": "a"}}},
            "train.guided_alignment.file must be left out where synthetic corpora are added",
        ),
        ({"student": {"model.dropout": 2}}, "chain.yaml: student: `model.dropout` must be less than 1"),
        ({"decode": {"beam": 0}}, "decode: `beam` must be greater than 0, but is 0"),
        ({"filter": {"detokenize": True}}, "filter must hold rules that drop pairs"),
        ({"tag": ">>bt<<"}, "`tag`"),
    ],
)
def test_mistakes_of_a_chain_are_found_before_any_work(chain, tmp_path, changes, message):
    chain.write_text(yaml.safe_dump({**yaml.safe_load(chain.read_text()), **changes}))
    with pytest.raises(InputError) as error:
        run_chain(chain, tmp_path / "chain")
    assert message in str(error.value) and not (tmp_path / "chain").exists()


def test_a_chain_without_text_is_refused_before_its_training(chain, tmp_path):
    (tmp_path / "empty.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "empty.txt").touch()
    for name in ("empty.gz", "empty.txt"):
        change(chain, text=[str(tmp_path / name)])
        with pytest.raises(InputError, match=f"text must have lines, but .*{name} is empty"):
            run_chain(chain, tmp_path / "chain")
    assert not (tmp_path / "chain").exists()


def test_only_pairs_of_the_forward_models_direction_are_translated(chain, tmp_path):
    change(chain, text=[], diversify=1)
    train = {**TINY["data"]["train"], "target_lang": "en", "source_lang": "nl"}
    change(tmp_path / "de_en.yaml", data={"train": train})
    with pytest.raises(InputError, match="data.train must have pairs from de to en to diversify, but has no"):
        run_chain(chain, tmp_path / "chain")


def test_only_what_is_trained_can_differ_in_the_seed(chain, tiny_run, tmp_path):
    change(chain, backward=str(tiny_run), diversify=1)
    with pytest.raises(InputError, match="backward must be a config if diversify is on, but is a folder"):
        run_chain(chain, tmp_path / "chain")


def test_an_extra_that_a_chain_needs_is_missed_before_its_training(chain, tmp_path, monkeypatch):
    from transformer_mt.text import languages

    change(chain, filter={"language": True})
    languages._model.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(InputError, match="py3langid, which identifies languages, is not installed"):
        run_chain(chain, tmp_path / "chain")
    languages._model.cache_clear()
    assert not (tmp_path / "chain").exists()


def test_a_chain_is_not_written_into_a_run(chain, tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "run")
    with pytest.raises(InputError, match="must be a separate folder for the chain, but belongs to a train"):
        run_chain(chain, tmp_path / "run")
    assert not (tmp_path / "run" / "backward").exists()


def test_a_chain_takes_a_backward_model_of_several_languages(chain, tmp_path):
    there = {"source_lang": "en", "target_lang": "de"}
    train = {"toy": "train", "size": 200, **there}
    data = {
        "source_lang": "de",
        "target_lang": "en",
        "train": [train, {**train, "reverse": True, "name": "back"}],
        "valid": {"toy": "valid", "size": 20, **there},
        "test": [],
    }
    change(tmp_path / "en_de.yaml", data=data)
    run_chain(chain, tmp_path / "chain")
    rows = read_objects(tmp_path / "chain" / "synthetic.jsonl")
    assert rows and {row["en"] for row in rows} <= set(ENGLISH)
    translator = Translator.load(tmp_path / "chain" / "backward", decode={"no_repeat_ngram": 1})
    assert rows[0]["de"] == translator.towards("de", "en").translate([rows[0]["en"]])[0].translation


def test_a_chain_does_not_move_what_it_needs(chain, tiny_run, tmp_path):
    folder = tmp_path / "chain"
    backward = shutil.copytree(tiny_run, folder / "backward")
    change(chain, backward=str(backward))
    with pytest.raises(InputError, match="backward: must be outside .*chain, which is moved aside"):
        run_chain(chain, folder, fresh=True)
    assert backward.is_dir()


def test_flags_of_a_chain_are_refused(chain, cli):
    for flag, value in (
        ("--keep", "0.5"), ("--filter", "copy"), ("--beam", "2"), ("--ensemble", "runs/x"),
        ("--device", "cpu"),
    ):  # fmt: skip
        result = cli("backtranslate", chain, flag, value)
        assert result.status == 2
        assert f"{flag} must be left out with a YAML file of the whole chain" in result.err


def test_two_sides_with_one_code_are_refused(translator, tiny_run, text, tmp_path):
    teacher = Runs(translator, [tiny_run])
    teacher.languages = "en", "en"
    with pytest.raises(InputError, match="must have different codes, .* but are en and en"):
        made_by(teacher, text, tmp_path / "out.jsonl")


def test_a_backward_model_of_the_wrong_direction_is_refused(chain, tmp_path):
    change(chain, backward="de_en.yaml")
    with pytest.raises(InputError, match="backward must translate en to de, but translates de to en"):
        run_chain(chain, tmp_path / "chain")
    assert not (tmp_path / "chain").exists()
