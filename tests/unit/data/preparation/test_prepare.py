""""""

import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.faults import cores, small_blocks
from transformer_mt.config import Config
from transformer_mt.config.load import load_config
from transformer_mt.data.changes.training_rows import held_out_rows
from transformer_mt.data.vocabulary.tokenizer import EOS, PAD
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import cache_root
from transformer_mt.messages import messages_to
from transformer_mt.preparation import prepare
from transformer_mt.settings.corpus_keys import FilterConfig, label_piece

TEXT = [
    (f"the dog {i} sees {i % 7} cats and runs", f"der Hund {i} sieht {i % 7} Katzen und rennt")
    for i in range(200)
]


def cached():
    """The prepared data sets."""
    return [path for path in cache_root().iterdir() if path.name not in (".lock", "scores")]


@pytest.fixture
def corpus_config(tmp_path, write_config, monkeypatch):
    """A config on files, in a cache of its own, with one process."""
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "cache"))
    cores(monkeypatch, 1)

    def write(name, pairs):
        files = [tmp_path / f"{name}.en", tmp_path / f"{name}.de"]
        for file, side in zip(files, zip(*pairs)):
            file.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
        return {"source": str(files[0]), "target": str(files[1])}

    dropped = [TEXT[3], ("", "leer"), ("Held.", "Out."), ("lo " * 70, "lo " * 70), ("x", "y" + " y" * 18)]
    data = {
        "train": write("train", [*TEXT, *dropped]),
        "valid": write("valid", [("Held.", "Out."), ("A valid pair.", "Ein gültiges Paar."), ("", "leer")]),
        "test": [write("test", [TEXT[5]])],
    }
    return load_config(write_config(data=data, tokenizer={"vocab_size": 320}))


def test_cleaning_is_counted_and_shown(corpus_config, said):
    data = prepare(corpus_config)
    (corpus,) = data.corpora
    assert corpus.counts == {
        "read": 205, "empty side": 1, "duplicate": 1, "in validation or test": 2, "over-long": 1,
        "length ratio": 1, "kept": 199,
    }  # fmt: skip
    assert len(data.train) == 199
    assert any("duplicate" in text and "0.49%" in text for text in said)
    assert data.valid[0].sentences == [("Held.", ("Out.",)), ("A valid pair.", ("Ein gültiges Paar.",))]


def with_data(config, **changes):
    return config.model_copy(update={"data": config.data.model_copy(update=changes)})


def test_filters_drop_and_repair_before_the_vocabulary_is_learnt(corpus_config):
    """In both passes, and never in validation and test sets."""
    train, valid = corpus_config.data.train, corpus_config.data.valid
    for path, text in (
        (train.source, "25 dogs\nsee {{name}}\nSame.\nfÃ¼r dogs\n"),
        (train.target, "35 Hunde\nsieh {{name}}\nsame\nfÃ¼r Hunde\n"),
        (valid.source, "For {{name}}\n"),
        (valid.target, "FÃ¼r {{name}}\n"),
    ):
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    chosen = FilterConfig(numbers=True, markup=True, copy=True, encoding="repair")
    data = prepare(with_data(corpus_config, filter=chosen))
    found = data.corpora[0].counts
    # 205 rows before; the over-long one, whose sides are equal, is a copy now
    assert (found["read"], found["numbers"], found["markup"], found["copy"]) == (209, 1, 1, 2)
    last = len(data.train) - 1
    assert data.tokenizer.decode_tgt(data.train.src(last).tolist()) == "für dogs"  # one vocabulary
    assert ("For {{name}}", ("FÃ¼r {{name}}",)) in data.valid[0].sentences
    assert prepare(corpus_config).corpora[0].counts["kept"] == 199 + 4


def test_a_missing_extra_is_named_before_anything_is_read(corpus_config, monkeypatch, said):
    """The extra of the last corpus, too: after an hour of reading the others it would be too late."""
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    (plain,) = corpus_config.data.entries
    filtered = plain.model_copy(update={"name": "second", "filter": FilterConfig(detokenize=True)})
    with pytest.raises(InputError, match="sacremoses, .* is not installed"):
        prepare(with_data(corpus_config, train=[plain, filtered]))
    assert not any(text.startswith("reading") for text in said)


def test_an_entry_has_its_own_filter(corpus_config):
    changes = {"name": "a"}, {"name": "b", "filter": FilterConfig(copy=True)}
    entries = [corpus_config.data.train.model_copy(update=change) for change in changes]
    data = prepare(with_data(corpus_config, train=entries, remove_duplicates=False))
    assert [corpus.counts.get("copy", 0) for corpus in data.corpora] == [0, 1]


def test_a_second_start_takes_the_cache_and_a_changed_setting_does_not(corpus_config, said):
    first = prepare(corpus_config)
    said.clear()
    assert prepare(corpus_config).fingerprint == first.fingerprint
    train = corpus_config.data.train.model_copy(update={"name": "another name"})
    named = prepare(with_data(corpus_config, train=train))
    assert [corpus.name for corpus in named.corpora] == ["another name"]
    assert not any(text.startswith(("reading", "learning")) for text in said)
    prepare(with_data(corpus_config, max_length=60))
    with_pieces = prepare(with_data(corpus_config, language_pieces=True))
    assert len(cached()) == 3
    piece = with_pieces.tokenizer.control_id(">>de<<")
    assert {with_pieces.train.src(row)[0] for row in range(10)} == {piece}


def test_the_vocabulary_is_learnt_on_the_training_side_only(corpus_config):
    """Of the kept pairs: what stands in validation or test has no part in it."""
    tokenizer = prepare(corpus_config).tokenizer.src
    pieces = {tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size())}
    assert "K" in pieces  # of Katzen
    assert not pieces & {"O", "ü", "P", "p"}  # of Out and gültiges Paar


def test_a_run_that_goes_on_keeps_its_vocabulary(corpus_config, tmp_path):
    data = prepare(corpus_config)
    vocabulary = corpus_config.tokenizer.model_copy(update={"vocab_size": 330})
    again = prepare(corpus_config.model_copy(update={"tokenizer": vocabulary}), data.tokenizer)
    assert again.tokenizer.fingerprint == data.tokenizer.fingerprint
    assert again.fingerprint == data.fingerprint


@pytest.mark.parametrize(
    "file, content", [("train-00000.arrow", b"cut"), ("facts.json", b"{"), ("tokenizer.model", b"x")]
)
def test_a_damaged_cache_is_made_again(corpus_config, file, content, said):
    first = prepare(corpus_config)
    (folder,) = cached()
    (folder / file).write_bytes(content)
    assert prepare(corpus_config).fingerprint == first.fingerprint
    assert any("is damaged" in text and "rebuilt" in text for text in said)


def test_a_cache_that_lost_pairs_is_made_again(corpus_config, monkeypatch, said):
    small_blocks(monkeypatch, rows=80)
    whole = prepare(corpus_config)
    (folder,) = cached()
    sorted(folder.glob("train-*.arrow"))[1].unlink()
    said.clear()
    assert len(prepare(corpus_config).train) == len(whole.train)
    assert "is damaged" in said[0]


def test_bad_input_leaves_nothing_behind(corpus_config):
    with open(corpus_config.data.train.source, "ab") as file:
        file.write(b"\xff\xfe\n")
    with pytest.raises(InputError, match=r"train.en:206: must be UTF-8"):
        prepare(corpus_config)
    assert cached() == []


def test_an_unwritable_cache_says_so(corpus_config, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(WorkError, match="set TRANSFORMER_MT_CACHE"):
        prepare(corpus_config)


def test_training_pairs_that_are_all_held_out_are_told(corpus_config):
    with pytest.raises(InputError, match="no training pair is left after cleaning"):
        prepare(with_data(corpus_config, train=corpus_config.data.valid))


def test_a_missing_test_split_is_a_warning_and_a_missing_training_split_an_error(
    write_config, tmp_path, said
):
    lines = "".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in TEXT)
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "train.jsonl").write_text(lines, encoding="utf-8")
    hub = {"hub": str(tmp_path / "hub"), "split": "train"}

    def prepared(split):
        data = {"train": {**hub, "split": split}, "test": [{**hub, "split": "test"}]}
        return prepare(load_config(write_config(data=data, tokenizer={"vocab_size": 320})))

    prepared("train")
    missing = "no split `test`; the splits are train"
    assert any("warning: test set left out" in text and missing in text for text in said)
    with pytest.raises(InputError, match="no split `trian`; the splits are train"):
        prepared("trian")


def test_what_was_begun_is_swept_a_week_later(corpus_config):
    old, new, other = (cache_root() / name / "text" for name in ("a" * 24, "b" * 24, "corpus"))
    for folder in (old, new, other):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    for folder in (old, other):
        os.utime(folder, (0, 0))
        os.utime(folder.parent, (0, 0))
    prepare(corpus_config)
    assert not old.parent.exists() and new.exists() and other.exists()


def test_a_cache_that_may_not_be_read_is_not_deleted(corpus_config, monkeypatch, said):
    prepare(corpus_config)
    (folder,) = cached()

    def forbidden(path, *rest):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("pyarrow.memory_map", forbidden)
        with pytest.raises(
            WorkError, match="cache cannot be read: Permission denied; .*TRANSFORMER_MT_CACHE"
        ):
            prepare(corpus_config)
    said.clear()
    prepare(corpus_config)
    assert folder.is_dir() and "from the cache" in said[0]


def test_a_corpus_that_changes_while_it_is_read_is_told(corpus_config):
    def meddle(message):
        if message.endswith("(training)"):  # its reading begins
            source = Path(corpus_config.data.train.source)
            source.write_text(source.read_text(encoding="utf-8").replace("dog", "cat"), encoding="utf-8")
            os.utime(source, (1, 1))

    said = "the corpus must not change while it is read, but has changed"
    with messages_to(meddle), pytest.raises(InputError, match=said):
        prepare(corpus_config)
    assert cached() == []
    prepare(corpus_config)


def test_a_file_of_the_same_size_and_time_is_another(corpus_config):
    """Programs that copy, such as rsync -t, tar and cp -p, leave such files."""
    prepare(corpus_config)
    path = Path(corpus_config.data.train.source)
    before, text = path.stat(), path.read_text(encoding="utf-8")
    path.write_text(text.replace("sees", "saws"), encoding="utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    data = prepare(corpus_config)
    assert "saws" in data.tokenizer.decode_tgt(data.train.src(0)) and len(cached()) == 2


# Next sentences of plain text: those of one document.


def documents(numbers):
    """Documents of three lines with a blank line after each; in half of them a line is dropped: one that all
    have, or one that is too long.
    """
    return "".join(
        {0: "a line that all have\n", 1: text.replace("of", "of " * 60)}.get(number % 4, text)
        if line == 1
        else text
        for number in numbers
        for line in range(3)
        for text in [f"text {number} line {line} of it\n"]
    )


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "cache"))
    cores(monkeypatch, 1)
    for name, numbers in (("train", range(80)), ("valid", range(80, 160))):
        text = re.sub(r"(line 2 of it\n)", r"\1\n", documents(numbers))
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    text = {"text": str(tmp_path / "train.txt"), "language": "en", "objective": "masked_lm"}
    return Config.model_validate(
        {
            "name": "bert",
            "data": {
                "language": "en",
                "train": text,
                "valid": {**text, "text": str(tmp_path / "valid.txt")},
                "masked_lm": {"next_sentence": True, "mask": 0.01},
                "max_length": 60,
            },
            "tokenizer": {"vocab_size": 60, "byte_fallback": False},
            "model": {"kind": "encoder"},
        }
    )


def taught_as_next(config, rows, tokenizer, count):
    """The (document, line) pairs of texts that are taught as neighbours."""
    sources, targets = rows.rows(0, np.arange(count))
    pairs = []
    for src, tgt in zip(sources, targets):
        if int(tgt[0]) != tokenizer.control_id(label_piece("next")):
            continue
        whole = np.where((tgt != PAD) & (np.arange(len(tgt)) > 0), tgt, src)  # what is hidden, too
        controls = {*tokenizer.control_ids.values(), *range(EOS + 1)}
        text = tokenizer.src.decode([i for i in whole.tolist() if i not in controls])
        pairs.append(re.findall(r"text (\d+) line (\d)", text))
    return [pair for pair in pairs if len(pair) == 2]


def test_a_blank_line_or_a_dropped_text_parts_what_stands_around_it(config, monkeypatch):
    small_blocks(monkeypatch, rows=50)
    data = prepare(config)
    (valid,) = data.valid
    rows = data.rows(config, data.mixture(config))
    held_out = held_out_rows(config, valid.pairs, "masked_lm", data.tokenizer)
    for changed, texts in ((rows, len(data.train)), (held_out, len(valid.pairs))):
        pairs = taught_as_next(config, changed, data.tokenizer, texts)
        assert len(pairs) > 8
        for (document, line), (of_next, next_line) in pairs:
            assert document == of_next and int(next_line) == int(line) + 1


def test_texts_that_are_held_out_of_training_follow_none(config):
    settings = config.model_dump()
    settings["data"]["valid"] = {"from_train": {"share": 0.3}}
    data = prepare(Config.model_validate(settings))
    (valid,) = data.valid
    assert len(valid.pairs) > 20 and not valid.pairs.is_followed(np.arange(len(valid.pairs))).any()
    assert data.train.is_followed(np.arange(len(data.train))).any()


def test_another_blank_line_is_another_training(config, tmp_path):
    before = prepare(config)
    text = (tmp_path / "train.txt").read_text(encoding="utf-8")
    changed = text.replace("line 0 of it\n", "line 0 of it\n\n", 1)
    (tmp_path / "train.txt").write_text(changed, encoding="utf-8")
    after = prepare(config)
    assert len(after.train) == len(before.train) and after.fingerprint != before.fingerprint
