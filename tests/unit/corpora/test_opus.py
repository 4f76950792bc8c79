"""Corpora of OPUS, from a local server that speaks its protocol, with faults."""

import io
import json
import zipfile

import pytest

from tests.helpers.file_server import serving
from transformer_mt.config import DataConfig
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import cache_root

PAIRS = [(f"Sentence number {n}, with some words.", f"Satz Nummer {n}, mit Wörtern.") for n in range(3000)]


def zipped(second="de"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:  # stored: so that it is large
        archive.writestr(f"Books.{second}-en.en", "".join(en + "\n" for en, _ in PAIRS))
        archive.writestr(f"Books.{second}-en.{second}", "".join(de + "\n" for _, de in PAIRS))
        archive.writestr("README", "words\n")
    return buffer.getvalue()


@pytest.fixture
def opus(tmp_path, monkeypatch):
    """A server with version v1 of Books in de-en and en-zh_CN; tries wait no time."""
    with serving() as server:

        def answer(query):
            assert query["preprocessing"] == "moses" and query["source"] < query["target"]
            pair = f"{query['source']}-{query['target']}"
            has = query["corpus"] == "Books" and pair in ("de-en", "en-zh_CN")
            url = f"{server.address}/OPUS-Books/v1/moses/{pair}.txt.zip"
            entry = {"corpus": "Books", "version": "v1", "url": url, "size": 300, "alignment_pairs": 3000}
            wanted = query.get("version", "v1") == "v1"
            return json.dumps({"corpora": [entry] if has and wanted else []}).encode()

        server.answers["/api/"] = answer
        server.files["/OPUS-Books/v1/moses/de-en.txt.zip"] = zipped()
        server.files["/OPUS-Books/v1/moses/en-zh_CN.txt.zip"] = zipped("zh_CN")
        monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("TRANSFORMER_MT_OPUS", f"{server.address}/api/")
        monkeypatch.setattr("time.sleep", lambda seconds: None)  # between tries
        yield server


def data(source="en", target="de", **entry):
    corpus = {"opus": "Books", "version": "v1", **entry}
    return DataConfig.model_validate(
        {"source_lang": source, "target_lang": target, "train": corpus, "valid": {"toy": "valid"}}
    )


def read(config):
    return list(config.train.read(config.languages))


def test_a_corpus_is_downloaded_once(opus):
    config = data()
    assert config.train.describe() == "opus Books v1"
    assert config.train.describe_access().endswith("from the network or its local cache")
    assert read(config) == PAIRS
    assert read(config) == PAIRS
    assert read(data("de", "en")) == [(de, en) for en, de in PAIRS]
    assert len(opus.requests) == 1
    kept = [path.name for path in (cache_root() / "downloads/opus/Books/v1").iterdir()]
    assert sorted(kept) == [".lock", "de-en.txt.zip"]
    # OPUS has other codes for some languages
    assert read(data(target="zh", languages=["en", "zh_CN"])) == PAIRS


def test_a_cut_download_is_resumed(opus):
    """Where it stopped, not from the beginning."""
    opus.faults = [("cut", 100_000), ("cut", 50_000), 503, ("cut", 0)]
    assert read(data()) == PAIRS
    ranges = [wanted for _, wanted in opus.requests]
    assert ranges == [None, "bytes=100000-", *["bytes=150000-"] * 3]


def test_a_killed_download_is_resumed_by_the_next_process(opus, monkeypatch):
    opus.faults = [("cut", 100_000), *[("cut", 0)] * 6]
    with pytest.raises(WorkError, match=r"opus Books v1: cannot be downloaded from .*run it again, it res"):
        read(data())
    assert read(data()) == PAIRS
    assert opus.requests[-1][1] == "bytes=100000-"
    # One killed before it got its name has all bytes: the server answers 416.
    (file,) = (cache_root() / "downloads/opus/Books/v1").glob("*.zip")
    file.with_name(f"{file.name}.part.mark").write_text('"1"', encoding="utf-8")
    file.rename(file.with_name(f"{file.name}.part"))
    assert read(data()) == PAIRS


def test_a_file_that_changed_on_the_server_is_downloaded_whole(opus):
    opus.faults = [("cut", 100_000), ("changed",)]
    assert read(data()) == PAIRS


def test_a_wrong_size_is_not_kept(opus):
    """The server says and sends fewer bytes than the file has: it is no zip file."""
    opus.faults = [("short", 1000)]
    with pytest.raises(WorkError, match=r"opus Books v1: the data from http.*de-en.txt.zip are damaged"):
        read(data())
    assert read(data()) == PAIRS


def test_what_opus_does_not_have_is_refused(opus):
    with pytest.raises(
        InputError, match=r"opus Books v9: OPUS must have this corpus for de and en, but does not; its ver"
    ):
        read(data(version="v9"))
    with pytest.raises(InputError, match=r"for en and xx, but does not; its language codes may differ"):
        read(data(target="xx"))
    del opus.files["/OPUS-Books/v1/moses/de-en.txt.zip"]
    with pytest.raises(InputError, match=r"answers 404 \(Not Found\); check the name and the version"):
        read(data())


def test_a_service_that_fails(opus, monkeypatch):
    opus.answers["/api/"] = lambda query: b"<html>"
    with pytest.raises(WorkError, match="must answer with JSON, but does not"):
        read(data())
    opus.answers["/api/"] = lambda query: b'{"corpora": 1}'
    with pytest.raises(WorkError, match="must answer with a list of corpora, but does not"):
        read(data())
    opus.answers["/api/"] = lambda query: b'{"corpora": [{"url": "file:///etc/passwd.zip"}]}'
    with pytest.raises(InputError, match=r"passwd.zip: is not an address that begins with https://"):
        read(data())
    monkeypatch.setenv("TRANSFORMER_MT_OPUS", "opus.example/api/")
    with pytest.raises(InputError, match=r"is not an address that begins with https://"):
        read(data())
    monkeypatch.setenv("TRANSFORMER_MT_OPUS", "http://127.0.0.1:9/api/")
    with pytest.raises(WorkError, match=r"opus Books v1: cannot be downloaded from .*check the network"):
        read(data())
