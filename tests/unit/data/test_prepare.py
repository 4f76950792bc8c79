import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest

from transformer_mt.cache import cache_root
from transformer_mt.config.load import load_config
from transformer_mt.corpora.seen_sentences import SeenSentences
from transformer_mt.data.preparation import first_pass as passes
from transformer_mt.data.preparation import prepare as prepare_module
from transformer_mt.data.preparation import second_pass as shards_module
from transformer_mt.data.preparation.prepare import prepare
from transformer_mt.data.preparation.shard_helper import ShardHelper
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError, WorkError
from transformer_mt.locks import lock_folder
from transformer_mt.settings.filter import FilterConfig

TEXT = [
    (f"the dog {i} sees {i % 7} cats and runs", f"der Hund {i} sieht {i % 7} Katzen und rennt")
    for i in range(200)
]


def cached():
    """The prepared data sets."""
    return [path for path in cache_root().iterdir() if path.name not in (".lock", "scores")]


@pytest.fixture
def corpus_config(tmp_path, write_config, monkeypatch):
    """A config on files, in a cache of its own."""
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "cache"))

    def write(name, pairs):
        for side, column in (("en", 0), ("de", 1)):
            (tmp_path / f"{name}.{side}").write_text(
                "".join(pair[column] + "\n" for pair in pairs), encoding="utf-8"
            )
        return {"source": str(tmp_path / f"{name}.en"), "target": str(tmp_path / f"{name}.de")}

    train = [
        *TEXT,
        TEXT[3],
        ("", "leer"),
        ("Held.", "Out."),
        ("lo " * 70, "lo " * 70),
        ("x", "y y y y y y y y y y y y y y y y y y y"),
    ]
    data = {
        "train": write("train", train),
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


def with_filter(config, **chosen):
    return config.model_copy(
        update={"data": config.data.model_copy(update={"filter": FilterConfig(**chosen)})}
    )


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
    chosen = with_filter(corpus_config, numbers=True, markup=True, copy=True, encoding="repair")
    data = prepare(chosen)
    found = data.corpora[0].counts
    # 205 rows before; the over-long one, whose sides are equal, is a copy now
    assert (found["read"], found["numbers"], found["markup"], found["copy"]) == (209, 1, 1, 2)
    last = len(data.train) - 1
    assert data.tokenizer.decode_tgt(data.train.src(last).tolist()) == "für dogs"  # one vocabulary
    assert ("For {{name}}", ("FÃ¼r {{name}}",)) in data.valid[0].sentences
    assert prepare(corpus_config).corpora[0].counts["kept"] == 199 + 4


@pytest.mark.parametrize(
    ("module", "chosen"), [("ftfy", {"encoding": "repair"}), ("sacremoses", {"detokenize": True})]
)
def test_a_missing_extra_is_named_before_anything_is_read(corpus_config, monkeypatch, said, module, chosen):
    """The extra of the last corpus, too: after an hour of reading the others it would be too late."""
    monkeypatch.setitem(sys.modules, module, None)
    (plain,) = corpus_config.data.entries
    filtered = plain.model_copy(update={"name": "second", "filter": FilterConfig(**chosen)})
    data = corpus_config.data.model_copy(update={"train": [plain, filtered]})
    with pytest.raises(InputError, match=f"{module} must be installed"):
        prepare(corpus_config.model_copy(update={"data": data}))
    assert not any(text.startswith("reading") for text in said)


def test_an_entry_has_its_own_filter(corpus_config):
    corpus = corpus_config.data.train
    entries = [
        corpus.model_copy(update={"name": "a"}),
        corpus.model_copy(update={"name": "b", "filter": FilterConfig(copy=True)}),
    ]
    data = corpus_config.data.model_copy(update={"train": entries, "remove_duplicates": False})
    counts = [c.counts for c in prepare(corpus_config.model_copy(update={"data": data})).corpora]
    assert [c.get("copy", 0) for c in counts] == [0, 1]


def test_a_second_start_takes_the_cache_and_a_changed_file_or_setting_does_not(corpus_config, monkeypatch):
    first = prepare(corpus_config)
    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "train", None)  # would raise
        assert prepare(corpus_config).fingerprint == first.fingerprint
        train = corpus_config.data.train.model_copy(update={"name": "another name"})
        data = corpus_config.data.model_copy(update={"train": train})
        named = prepare(corpus_config.model_copy(update={"data": data}))
        assert [corpus.name for corpus in named.corpora] == ["another name"]
    longer = corpus_config.model_copy(
        update={"data": corpus_config.data.model_copy(update={"max_length": 60})}
    )
    prepare(longer)
    assert len(cached()) == 2
    with open(corpus_config.data.train.target, "a", encoding="utf-8") as file:
        file.write("noch eine Zeile\n")
    with open(corpus_config.data.train.source, "a", encoding="utf-8") as file:
        file.write("one more line\n")
    assert prepare(corpus_config).fingerprint != first.fingerprint


def test_language_pieces_are_in_the_cache_too(corpus_config):
    prepare(corpus_config)
    data = corpus_config.data.model_copy(update={"language_pieces": True})
    with_pieces = prepare(corpus_config.model_copy(update={"data": data}))
    piece = with_pieces.tokenizer.control_id(">>de<<")
    assert {with_pieces.train.src(row)[0] for row in range(10)} == {piece}


def test_the_vocabulary_is_learnt_on_the_training_side_only(corpus_config):
    """Of the kept pairs: what stands in validation or test has no part in it."""
    seen = []
    original = Tokenizer.train.__func__

    def spy(cls, pairs, config, tags):
        seen.extend(pairs)
        return original(cls, pairs, config, tags)

    Tokenizer.train, kept = classmethod(spy), Tokenizer.train
    try:
        prepare(corpus_config)
    finally:
        Tokenizer.train = kept
    assert TEXT[4] in seen
    assert (
        TEXT[5] not in seen
        and ("Held.", "Out.") not in seen
        and ("A valid pair.", "Ein gültiges Paar.") not in seen
    )


def test_a_run_that_goes_on_keeps_its_vocabulary(corpus_config, tmp_path):
    data = prepare(corpus_config)
    changed = corpus_config.model_copy(
        update={"tokenizer": corpus_config.tokenizer.model_copy(update={"vocab_size": 330})}
    )
    again = prepare(changed, data.tokenizer)
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
    monkeypatch.setattr(shards_module, "SHARD", 25)
    whole = prepare(corpus_config)
    (folder,) = cached()
    sorted(folder.glob("train-*.arrow"))[1].unlink()
    said.clear()
    assert len(prepare(corpus_config).train) == len(whole.train)
    assert "is damaged" in said[0] and "pairs are left" in said[0]


def test_killed_at_its_very_end_preparation_goes_on(corpus_config, monkeypatch):
    def killed(path, target, rename=Path.rename):
        if path.suffix == ".part":
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare(corpus_config)
    assert len(prepare(corpus_config).train) > 0
    assert [path.suffix for path in cached()] == [""] and not (cached()[0] / "first_pass").exists()


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
    data = corpus_config.data.model_copy(update={"train": corpus_config.data.valid})
    with pytest.raises(InputError, match="no training pair is left after cleaning"):
        prepare(corpus_config.model_copy(update={"data": data}))


def test_a_missing_test_split_is_a_warning_and_a_missing_training_split_an_error(
    corpus_config, tmp_path, said
):
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "train.jsonl").write_text(
        "".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in TEXT), encoding="utf-8"
    )
    hub = {"hub": str(folder), "split": "train"}

    def with_data(**changes):
        config = corpus_config.model_dump()
        config["data"] |= changes
        return type(corpus_config).model_validate(config)

    prepare(with_data(train=hub, test=[{**hub, "split": "test"}]))
    assert any(
        "warning: test set left out" in text and "no split `test`; the splits are train" in text
        for text in said
    )
    with pytest.raises(InputError, match="no split `trian`; the splits are train"):
        prepare(with_data(train={**hub, "split": "trian"}))


def test_what_was_begun_is_swept_a_week_later(corpus_config):
    old, new = cache_root() / "abc.part", cache_root() / "def.part"
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    prepare(corpus_config)
    assert not old.exists() and new.exists()
    shutil.rmtree(new)


@pytest.mark.parametrize("encoded_before", [0, 1, 4, 9])
def test_an_interrupted_preparation_goes_on_where_it_was(corpus_config, monkeypatch, encoded_before, said):
    """Interrupted after the first pass, or after some shards of the second: what is done is not
    done again.
    """
    monkeypatch.setattr(shards_module, "SHARD", 25)
    whole = prepare(corpus_config)
    expected = [(whole.train.src(i).tolist(), whole.train.tgt(i).tolist()) for i in range(len(whole.train))]
    shutil.rmtree(cached()[0])
    shards, original = [], prepare_module.write_chunks

    def interrupted(path, chunks, num_ids):
        if len(shards) == encoded_before:
            raise KeyboardInterrupt
        shards.append(path.name)
        return original(path, chunks, num_ids)

    with monkeypatch.context() as patch:
        for module in (shards_module, prepare_module):
            patch.setattr(module, "write_chunks", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare(corpus_config)
    assert [path.suffix for path in cached()] == [".part"]
    again = []
    monkeypatch.setattr(Tokenizer, "train", None)  # would raise
    for module in (shards_module, prepare_module):
        monkeypatch.setattr(
            module,
            "write_chunks",
            lambda path, chunks, num_ids: (again.append(path.name), original(path, chunks, num_ids))[1],
        )
    data = prepare(corpus_config)
    assert "resuming the preparation of the data, which was interrupted" in said
    assert shards + again == [*(f"train-{i:05d}.arrow" for i in range(9)), "valid-0.arrow"]
    assert data.fingerprint == whole.fingerprint and data.corpora == whole.corpora
    assert [
        (data.train.src(i).tolist(), data.train.tgt(i).tolist()) for i in range(len(data.train))
    ] == expected
    assert [path.suffix for path in cached()] == [""]


def test_a_second_process_waits_and_takes_what_the_first_made(corpus_config, monkeypatch, said):
    first = prepare(corpus_config)
    (made,) = cached()
    elsewhere = made.parent.with_name("elsewhere")
    made.rename(elsewhere)
    data = []
    monkeypatch.setattr(Tokenizer, "train", None)  # would raise
    with lock_folder(cache_root()):
        waiting = threading.Thread(target=lambda: data.append(prepare(corpus_config)))
        waiting.start()
        deadline = time.monotonic() + 30
        while not any("waiting for it" in text for text in said) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not data
        elsewhere.rename(made)
    waiting.join(60)
    assert data[0].fingerprint == first.fingerprint and any(
        "another process prepares data" in text for text in said
    )


def test_a_cache_that_may_not_be_read_is_not_deleted(corpus_config, monkeypatch, said):
    prepare(corpus_config)
    (folder,) = cached()

    def forbidden(paths):
        raise PermissionError(13, "Permission denied", str(paths[0]))

    with monkeypatch.context() as patch:
        patch.setattr(prepare_module, "EncodedPairs", forbidden)
        with pytest.raises(
            WorkError, match="the cache cannot be read: Permission denied; .*TRANSFORMER_MT_CACHE"
        ):
            prepare(corpus_config)
    said.clear()
    prepare(corpus_config)
    assert folder.is_dir() and "from the cache" in said[0]


@pytest.mark.parametrize("helper_fails", [False, True])
def test_a_process_that_waits_helps_to_encode(corpus_config, monkeypatch, helper_fails):
    """Each shard is encoded once, and what a helper leaves undone the leading process does."""
    monkeypatch.setattr(shards_module, "SHARD", 25)
    alone = prepare(corpus_config)
    (folder,) = cached()
    shutil.rmtree(folder)
    encoded, original = {"MainThread": [], "encoding": []}, shards_module.write_chunks

    def slow(path, chunks, num_ids):
        name = threading.current_thread().name
        encoded[name].append(path.name)
        fingerprint = original(path, chunks, num_ids)
        if name == "MainThread":
            time.sleep(0.3)
        elif helper_fails:
            raise OSError("No space left on device")
        return fingerprint

    monkeypatch.setattr(shards_module, "write_chunks", slow)
    with ShardHelper(corpus_config, folder.with_name(f"{folder.name}.part")):
        together = prepare(corpus_config)
    assert together.fingerprint == alone.fingerprint and together.corpora == alone.corpora
    assert encoded["encoding"] and encoded["MainThread"]
    shards = sorted(path.name for path in folder.glob("train-*.arrow"))
    by_helper = [] if helper_fails else encoded["encoding"]
    assert sorted(encoded["MainThread"] + by_helper) == shards
    assert cached() == [folder] and not list(folder.rglob("*.lock"))


@pytest.mark.parametrize("last", ["facts.json", "train-00002.json"])
def test_an_interrupted_preparation_loses_no_sentence_of_the_record(corpus_config, monkeypatch, last):
    monkeypatch.setattr(shards_module, "SHARD", 25)
    whole = SeenSentences.read(prepare(corpus_config).seen_file).own.trained.exact
    (folder,) = cached()
    shutil.rmtree(folder)

    def killed(path, text, write=prepare_module.write_text):
        if path.name == last:
            raise KeyboardInterrupt
        write(path, text)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(prepare_module, "write_text", killed)
        patch.setattr(shards_module, "write_text", killed)
        prepare(corpus_config)
    again = SeenSentences.read(prepare(corpus_config).seen_file).own.trained.exact
    assert len(whole) > 100 and again.tolist() == whole.tolist()
    assert not list(folder.rglob("*.npy"))


def test_a_file_out_of_reach_costs_no_encoded_shard(corpus_config, monkeypatch):
    monkeypatch.setattr(shards_module, "SHARD", 25)
    original, shards = prepare_module.write_chunks, []

    def torn(path, chunks, num_ids):
        if len(shards) == 3:
            raise InputError("train.en: cannot be read after line 80")
        shards.append(path.name)
        return original(path, chunks, num_ids)

    with monkeypatch.context() as patch:
        patch.setattr(shards_module, "write_chunks", torn)
        with pytest.raises(InputError):
            prepare(corpus_config)
    again = []
    for module in (shards_module, prepare_module):
        monkeypatch.setattr(
            module,
            "write_chunks",
            lambda path, chunks, num_ids: (again.append(path.name), original(path, chunks, num_ids))[1],
        )
    prepare(corpus_config)
    assert again[0] == "train-00003.arrow"


def test_a_corpus_that_changes_while_it_is_read_is_told(corpus_config, monkeypatch):
    original = prepare_module.write_chunks

    def meddled(path, chunks, num_ids):
        source = Path(corpus_config.data.train.source)
        source.write_text(source.read_text(encoding="utf-8").replace("dog", "cat"), encoding="utf-8")
        os.utime(source, (1, 1))
        return original(path, chunks, num_ids)

    with monkeypatch.context() as patch:
        patch.setattr(shards_module, "write_chunks", meddled)
        with pytest.raises(InputError, match="the corpus must not change while it is read, but has changed"):
            prepare(corpus_config)
    assert cached() == []
    prepare(corpus_config)


def test_the_sample_for_the_vocabulary_is_even_and_bounded():
    pairs = [(str(i), str(i)) for i in range(10_000)]
    sample = passes._evenly_spaced(pairs, 700)
    assert 350 <= len(sample) <= 700
    steps = {int(b[0]) - int(a[0]) for a, b in zip(sample, sample[1:])}
    assert len(steps) == 1
    assert passes._evenly_spaced(pairs[:50], 700) == pairs[:50]
