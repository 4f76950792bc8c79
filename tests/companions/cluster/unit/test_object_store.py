"""Data prepared in an object store, and corpora read from one."""

import errno
import os
import re
import shutil
import time
from pathlib import Path
from threading import Thread

import fsspec
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from tests.helpers.faults import cores, small_blocks
from transformer_mt.companions.cluster import remote_store
from transformer_mt.config.data_section import PreparationConfig
from transformer_mt.config.load import load_config
from transformer_mt.config.root import TokenizerConfig
from transformer_mt.config.train_section import GuidedAlignmentConfig
from transformer_mt.corpora import toy
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import cache_root
from transformer_mt.preparation import prepare
from transformer_mt.run_folder import RunFolder
from transformer_mt.training import train


class Faulty:
    """The object store, which answers a share of the requests with 503, and the others late."""

    def __init__(self):
        self._app = DomainDispatcherApplication(create_backend_app)
        self._random, self.share, self.seconds, self.refused = np.random.default_rng(1), 0.0, 0.0, 0

    def __call__(self, environ, start_response):
        time.sleep(self.seconds)
        if self._random.random() < self.share:
            self.refused += 1
            answer = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
            answer = b"" if environ["REQUEST_METHOD"] == "HEAD" else answer
            start_response("503 Slow Down", [("Content-Length", str(len(answer)))])
            return [answer]
        return self._app(environ, start_response)


@pytest.fixture(scope="module")
def server():
    faulty = Faulty()
    server = make_server("127.0.0.1", 0, faulty, threaded=True)
    Thread(target=server.serve_forever, daemon=True).start()
    yield faulty, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture
def bucket(server, monkeypatch, tmp_path):
    """An empty bucket of an object store on this machine, and the cache of one that uses it."""
    faulty, address = server
    faulty.share = faulty.seconds = 0.0
    for name, value in {
        "AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_MAX_ATTEMPTS": "1", "AWS_DEFAULT_REGION": "us-east-1",
        "TRANSFORMER_MT_CACHE": str(tmp_path / "cache"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(remote_store, "_SECONDS", 0.01)
    name = f"s3://b{os.urandom(6).hex()}"
    fsspec.filesystem("s3").mkdir(name)
    return name


@pytest.fixture
def config(bucket, write_config, monkeypatch):
    small_blocks(monkeypatch, rows=150)
    cores(monkeypatch, 1)
    data = {
        "train": {"toy": "train", "size": 400},
        "valid": {"from_train": {"share": 0.05, "max": 20}},
        "test": [],
        "preparation": {"folder": f"{bucket}/prepared"},
    }
    return load_config(write_config(data=data, tokenizer={"vocab_size": 320}))


def contents(data):
    pairs = [(data.train.src(i).tolist(), data.train.tgt(i).tolist()) for i in range(len(data.train))]
    return pairs, data.corpora, data.held_out, data.fingerprint


def locally(config):
    """The contents of data prepared in a local folder, which is then removed."""
    alone = config.data.preparation.model_copy(update={"folder": None})
    data = config.data.model_copy(update={"preparation": alone})
    prepared = contents(prepare(config.model_copy(update={"data": data})))
    shutil.rmtree(cache_root())
    return prepared


def test_the_data_are_those_of_a_folder_and_another_machine_finds_them(
    config, bucket, monkeypatch, tmp_path, said
):
    here = locally(config)
    data = prepare(config)
    assert data.location.startswith(f"{bucket}/prepared/")
    assert contents(data) == here
    names = [Path(name).name for name in fsspec.filesystem("s3").find(data.location)]
    assert not any(name.endswith((".tmp", ".reasons", ".keys")) for name in names)
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "another machine"))
    said.clear()
    again = prepare(config)
    assert not any(text.startswith("learning") for text in said)
    assert not list(again.seen_file.parent.glob("train-*"))  # fetched when they are needed
    assert contents(again) == here
    again.train.close_all_but([range(10)])
    assert [file.name for file in again.seen_file.parent.glob("train-*")] == ["train-00000.arrow"]


def test_a_store_that_is_busy_and_slow_gets_the_same_data(config, server, monkeypatch):
    small_blocks(monkeypatch, rows=300)
    here = locally(config)
    faulty, _ = server
    faulty.share, faulty.seconds = 0.2, 0.005
    assert contents(prepare(config)) == here
    assert faulty.refused > 5


def test_a_store_that_stays_busy_is_one_line(config, server):
    server[0].share = 1.0
    with pytest.raises(WorkError, match=r"s3://.*/prepared/\w+: cannot be used: .*it resumes from here"):
        prepare(config)


def test_a_full_disk_of_this_machine_is_not_a_fault_of_the_store(monkeypatch, tmp_path):
    files, tries = fsspec.filesystem("memory"), []

    def full(self, source, target):
        tries.append(target)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(files), "get_file", full)
    with pytest.raises(OSError, match="No space left on device: '.*block'"):
        remote_store.RemoteStore("memory://full").fetch("block", tmp_path / "block")
    assert len(tries) == 1 and not list(tmp_path.iterdir())


def links_of(data):
    return [(data.links.src(row).tolist(), data.links.tgt(row).tolist()) for row in range(len(data.train))]


def test_pairs_of_a_store_are_aligned_as_those_of_a_folder(config, monkeypatch, tmp_path):
    small_blocks(monkeypatch, aligned=200)
    train = config.train.model_copy(update={"guided_alignment": GuidedAlignmentConfig(weight=0.1)})
    config = config.model_copy(update={"train": train})
    of_store = links_of(prepare(config))
    here = config.data.model_copy(update={"preparation": PreparationConfig()})
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "other"))
    assert of_store == links_of(prepare(config.model_copy(update={"data": here})))
    assert of_store and all(src for src, _ in of_store)
    assert not list((tmp_path / "cache").glob("*/train-*.arrow"))  # each block was removed after its use


def test_several_workers_write_to_a_store(config, monkeypatch):
    here = locally(config)
    cores(monkeypatch, 2)
    assert contents(prepare(config)) == here


def test_a_damaged_block_is_never_taken(config):
    data = prepare(config)
    files, url = fsspec.filesystem("s3"), f"{data.location}/train-00001.arrow"
    whole = files.cat_file(url)
    for damaged in (whole[:-40], whole[:-1] + b"!"):
        files.pipe_file(url, damaged)
        with pytest.raises(WorkError, match=r"train-00001.arrow is not as it was written; remove s3://"):
            contents(prepare(config))
    files.pipe_file(url, whole)
    assert len(contents(prepare(config))[0]) > 200


def test_corpora_are_read_by_pattern_here_and_there(config, bucket, tmp_path, write_config):
    pairs, names = list(toy.generate("train", 300)), []
    for part in range(4):  # nothing is in the last one
        rows = pairs[100 * part : 100 * part + 100]
        sides = {"en": [en for en, _ in rows], "de": [de for _, de in rows]}
        table = pyarrow.table(sides, pyarrow.schema([(side, pyarrow.string()) for side in sides]))
        names.append(tmp_path / f"part-{part}.parquet")
        pyarrow.parquet.write_table(table, names[-1])
        if not rows:
            pyarrow.parquet.write_table(table, tmp_path / "also-3.parquet")
        fsspec.filesystem("s3").put_file(str(names[-1]), f"{bucket}/corpus/part-{part}.parquet")

    def read(file):
        data = {"train": {"file": file}, "valid": {"toy": "valid", "size": 30}, "test": []}
        return load_config(write_config(data=data, tokenizer={"vocab_size": 320}))

    of_bucket = prepare(read(f"{bucket}/corpus/part-*.parquet"))
    of_folder = prepare(read(str(tmp_path / "part-*.parquet")))
    assert contents(of_bucket)[0] == contents(of_folder)[0] and of_bucket.corpora[0].counts["read"] == 300
    before = read(f"{bucket}/corpus/part-*.parquet").data.entries[0].identity()
    fsspec.filesystem("s3").put_file(str(names[0]), f"{bucket}/corpus/part-2.parquet")
    assert read(f"{bucket}/corpus/part-*.parquet").data.entries[0].identity() != before
    for file, message in {
        f"{bucket}/corpus/x-*.parquet": "must match at least one file, but matches none",
        f"{bucket}/corpus/x.parquet": "no such file",
        str(tmp_path / "x-*.parquet"): "must match at least one file, but matches none",
        str(tmp_path / "*3.parquet"): "a corpus must have sentence pairs, but is empty",
    }.items():
        with pytest.raises(InputError, match=message):
            prepare(read(file))
    fsspec.filesystem("s3").pipe_file(f"{bucket}/corpus/x.tsv", b"en\tde\na\tb\n")
    with pytest.raises(InputError, match="x.tsv: a file by its URL must be .parquet"):
        prepare(read(f"{bucket}/corpus/x.tsv"))


def with_data(config, **changes):
    values = config.model_dump()
    values["data"] |= {"preparation": {}, **changes}
    return type(config).model_validate(values)


@pytest.mark.parametrize("is_there", [False, True])
def test_shards_are_trained_on_as_they_were_prepared(config, is_there, said, monkeypatch):
    source = config if is_there else with_data(config)
    whole = prepare(source)
    said.clear()
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(cache_root().with_name("elsewhere")))
    shards = {"shards": whole.location}
    for valid in ({"from_train": {"share": 0.05}}, {"toy": "valid", "size": 30}):
        data = prepare(with_data(config, train=shards, valid=valid))
        assert contents(data)[0] == contents(whole)[0]
        assert data.tokenizer.fingerprint == whole.tokenizer.fingerprint and data.valid[0].sentences
    assert not any(text.startswith(("warning", "learning")) for text in said)
    assert prepare(with_data(config, train=shards, valid=valid)).fingerprint == data.fingerprint
    among = {"toy": "train", "size": 40}
    for kind, sets in (("validation", {"valid": among}), ("test", {"test": [among]})):
        prepare(with_data(config, train=shards, **sets))
        assert any(re.match(rf"warning: \d+ of 40 {kind} sentences are in", text) for text in said)


def test_shards_bring_the_keys_of_their_vocabulary(config, tmp_path):
    shards = with_data(config, train={"shards": prepare(with_data(config)).location})
    smaller = shards.tokenizer.model_copy(update={"vocab_size": 333})
    smaller.model_fields_set.add("vocab_size")
    with pytest.raises(InputError, match="`tokenizer.vocab_size` must be 320, as in the prepared pairs"):
        train(shards.model_copy(update={"tokenizer": smaller}), tmp_path / "run")
    usual = shards.model_copy(update={"tokenizer": TokenizerConfig()})
    for updates in (2, 3):  # it is resumed, too
        shorter = usual.train.model_copy(update={"max_updates": updates, "validate_every": updates})
        train(usual.model_copy(update={"train": shorter}), tmp_path / "run")
    assert RunFolder(tmp_path / "run").config().tokenizer.vocab_size == 320


def test_shards_that_do_not_fit_are_refused(config, tmp_path):
    shards = {"shards": prepare(with_data(config)).location}
    for changes, message in (
        ({"train": {"shards": str(tmp_path)}}, "must be what .* printed, but has no facts.json"),
        ({"train": [shards, {"toy": "train"}]}, "must be the only training corpus"),
        ({"train": shards, "max_length": 9}, "data.max_length must be at least"),
        (
            {"train": shards, "max_length_ratio": 1.0, "remove_duplicates": False},
            "data.max_length_ratio, data.remove_duplicates must be left out",
        ),
    ):
        with pytest.raises(InputError, match=message):
            prepare(with_data(config, **changes))


def test_a_package_that_is_missing_is_named(config):
    of_hdfs = config.data.preparation.model_copy(update={"folder": "nowhere://bucket/prepared"})
    data = config.data.model_copy(update={"preparation": of_hdfs})
    with pytest.raises(InputError, match="its kind of store needs a package"):
        prepare(config.model_copy(update={"data": data}))


def test_damaged_rows_of_several_files_are_counted_on(tmp_path, write_config):
    for name, text in (("a", "en\tde\nx\ty\nz\n"), ("b", "en\tde\nv\nx\ty\n")):
        (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
    data = {"train": {"file": str(tmp_path / "*.tsv")}, "valid": {"toy": "valid", "size": 30}, "test": []}
    (corpus,) = load_config(write_config(data=data)).data.entries
    assert list(corpus.damaged(("en", "de"))) == [3, 5]
