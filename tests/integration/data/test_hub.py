"""Slices of sets on the hub, from a local server that speaks its protocol, with faults."""

import io
import json
import os
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest

from tests.conftest import ROOT
from tests.helpers.hub_server import NAME, serving
from transformer_mt.corpora.hub import HubCorpus, read_hub
from transformer_mt.errors import InputError

README = b"""---
configs:
- config_name: de-en
  data_files:
  - split: train
    path: de-en/train-*
  - split: validation
    path: de-en/validation-*
---
"""
# Reads the splits named on the command line, in a process that may use the network: what the library reads
# from the environment, it reads when it is imported.
SCRIPT = """
import json, sys
from huggingface_hub import constants
from transformer_mt.corpora.hub import UnknownSplitError
from transformer_mt.config import DataConfig
from transformer_mt.corpora import hub
from transformer_mt.errors import InputError, WorkError
hub._WAIT = 0.0
constants.DOWNLOAD_CHUNK_SIZE = 10_000
for split in sys.argv[2:]:
    split, _, other = split.partition("@")
    corpus = {"hub": other or sys.argv[1], "config": "de-en", "split": split}
    values = {"source_lang": "en", "target_lang": "de", "train": corpus, "valid": {"toy": "valid"}}
    data = DataConfig.model_validate(values)
    try:
        pairs = list(data.train.read(data.languages))
        print(json.dumps([len(pairs), pairs[0], pairs[-1]]))
    except (InputError, WorkError) as error:
        print(json.dumps([type(error).__name__, str(error)]))
"""


def parquet(start, stop):
    rows = [{"de": f"Satz {n} und mehr", "en": f"Sentence {n} and more"} for n in range(start, stop)]
    table = pyarrow.table({"id": list(range(start, stop)), "translation": rows})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer, compression="none")
    return buffer.getvalue()


FILES = {
    "README.md": README,
    **{f"de-en/train-0000{i}-of-00003.parquet": parquet(1000 * i, 1000 * i + 1000) for i in range(3)},
    "de-en/validation-00000-of-00001.parquet": parquet(5000, 5100),
}


@pytest.fixture
def hub():
    with serving(dict(FILES)) as server:
        yield server


@pytest.fixture
def read(hub, tmp_path):
    def run(*splits, address=None):
        environment = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"}
        environment |= {
            "HF_ENDPOINT": address or hub.address,
            "HF_HOME": str(tmp_path / "hf"),
            "TRANSFORMER_MT_CACHE": str(tmp_path / "cache"),
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, NAME, *splits], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def pair(number):
    return [f"Sentence {number} and more", f"Satz {number} und mehr"]


def names(hub):
    return [name.removeprefix("de-en/train-0000").split("-")[0] for name, _ in hub.fetched]


def test_a_slice_fetches_whole_files_and_no_more_than_it_needs(hub, read):
    slices = ["train[:10]", "train[:1500]", "train[1500:1600]", "train[:1000]", "validation"]
    *found, unknown, missing = read(*slices, "train[-1200:-1100]", "train", "nope", "train@wmt/none")
    assert found == [
        [10, pair(0), pair(9)],
        [1500, pair(0), pair(1499)],
        [100, pair(1500), pair(1599)],
        [1000, pair(0), pair(999)],
        [100, pair(5000), pair(5099)],
        [100, pair(1800), pair(1899)],
        [3000, pair(0), pair(2999)],
    ]
    assert names(hub) == ["0", "1", "de", "2"]  # each once; the third when the end is asked for
    message = f"{NAME}: no split `nope`; the splits are train, validation"
    assert unknown == ["UnknownSplitError", message]
    assert missing[0] == "InputError" and missing[1].startswith("wmt/none: cannot be downloaded from the hub")


@pytest.mark.slow  # the library waits between its own tries
def test_without_a_network_what_was_fetched_is_read_and_a_missing_file_reported(hub, read):
    read("train[:10]")
    found, (kind, message) = read("train[:10]", "train[:1500]", address="http://127.0.0.1:9")
    assert found == [10, pair(0), pair(9)]
    assert kind == "WorkError" and "train-00001-of-00003.parquet cannot be downloaded from the hub" in message


def test_cut_connections_wrong_sizes_and_errors_of_the_server_are_survived(hub, read):
    hub.faults = [("cut", 20_000), 503, ("cut", 100), None, ("size", 500)]
    assert read("train[:10]", "validation") == [[10, pair(0), pair(9)], [100, pair(5000), pair(5099)]]
    assert hub.fetched[1][1] == "bytes=20000-" and not hub.faults


def test_a_server_that_stays_broken_is_reported_in_one_line(hub, read):
    hub.faults = [503] * 100
    ((kind, message),) = read("train[:10]")
    assert kind == "WorkError" and "\n" not in message
    assert message.startswith(
        f"{NAME} de-en train[:10]: de-en/train-00000-of-00003.parquet cannot be downloaded"
    )
    assert message.endswith("check the network and run it again, it resumes")


def test_without_a_network_the_library_does_not_try_again_and_again(monkeypatch, tmp_path):
    """Its five retries take half a minute, and each start of a training would wait for them."""
    import datasets
    import huggingface_hub

    for module in (huggingface_hub.constants, datasets.config):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "https://hub.invalid")
    monkeypatch.setattr("transformer_mt.corpora.hub.getproxies", dict)
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail(f"waits for {seconds} s"))
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="a/b: cannot be downloaded from the hub"):
        list(read_hub(HubCorpus(hub="a/b", split="train"), ["en", "de"]))
    assert datasets.config.HF_HUB_OFFLINE
    # When the network is back, the same process uses it.
    monkeypatch.setattr("transformer_mt.corpora.hub._hub_has_address", lambda: True)
    monkeypatch.setattr("transformer_mt.corpora.hub.file_lists", lambda *_: ({"train": []}, None))
    assert list(read_hub(HubCorpus(hub="a/b", split="train"), ["en", "de"])) == []
    assert not datasets.config.HF_HUB_OFFLINE and not huggingface_hub.constants.HF_HUB_OFFLINE
