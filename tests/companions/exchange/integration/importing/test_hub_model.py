"""Models on the hub, from a local server that speaks its protocol, with faults."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("transformers")

from tests.conftest import ROOT
from tests.helpers.hub_server import COMMIT, MODEL, serving
from tests.helpers.public_models import write_marian

# In a process that may use the network: what the library reads from the environment, it reads when imported.
SCRIPT = """
import json, sys
from huggingface_hub import constants
from transformer_mt.corpora import hub
from transformer_mt.errors import UserError
from transformer_mt.companions.exchange.importing.foreign_model import fetched
hub._WAIT = 0.0
constants.DOWNLOAD_CHUNK_SIZE = 10_000
answers = []
for name, _, revision in (model.partition("@") for model in sys.argv[1:]):
    try:
        folder, commit = fetched(name, revision or None)
        answers.append([sorted(path.name for path in folder.iterdir()), commit])
    except UserError as error:
        answers.append([type(error).__name__, str(error)])
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub") / "opus-mt-en-de"
    write_marian(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def fetch(files, tmp_path):
    with serving({**files, "model.py": b"raise SystemExit", "tf_model.h5": b"x"}, "models") as hub:

        def run(*models, address=None):
            environment = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"}
            environment |= {
                "HF_ENDPOINT": address or hub.address, "HF_HOME": str(tmp_path / "hf"),
                "HF_HUB_DISABLE_XET": "1", "PYTHONPATH": str(ROOT),
                "TRANSFORMER_MT_CACHE": str(tmp_path / "cache"),
            }  # fmt: skip
            result = subprocess.run([sys.executable, "-c", SCRIPT, *(models or [MODEL])], env=environment,
                                    capture_output=True, text=True, check=False)  # fmt: skip
            assert result.returncode == 0, result.stderr
            answers = json.loads(result.stdout)
            return answers if models else answers[0]

        run.hub = hub
        yield run


def test_a_model_is_fetched_whole_although_cut_and_nothing_else_of_it(fetch, files):
    fetch.hub.faults = [("cut", 30_000), 503]
    assert fetch() == [sorted(files), COMMIT]
    (first, second, *_) = fetch.hub.fetched
    assert first[0] == "model.safetensors" and first[1] is None and second[1].startswith("bytes=")
    assert fetch(address="http://127.0.0.1:9") == [sorted(files), COMMIT]  # without a network


def test_a_copy_with_safe_weights_is_taken_from_the_hubs_own_program_alone(fetch, files):
    safe = fetch.hub.files.pop("model.safetensors")
    fetch.hub.files["pytorch_model.bin"] = b"x"
    fetch.hub.changes["somebody"] = {**files, "model.safetensors": safe}
    kind, message = fetch()
    assert kind == "InputError" and "must hold model.safetensors, but holds pytorch_model.bin" in message
    fetch.hub.changes["SFconvertbot"] = {**files, "model.safetensors": safe}
    assert fetch() == [sorted(files), f"{1:040x}"]


def test_unknown_names_and_revisions_are_told(fetch):
    unknown, revision, path = fetch("Helsinki-NLP/opus-mt-xx-yy", f"{MODEL}@v9", "./opus-mt-en-de")
    assert unknown == [
        "InputError", "Helsinki-NLP/opus-mt-xx-yy: the hub has no such model; check the name",
    ]  # fmt: skip
    assert revision == [
        "InputError", f"{MODEL}: the hub has no such model of revision v9; check the name",
    ]  # fmt: skip
    kind, message = path
    assert kind == "InputError" and message.startswith("./opus-mt-en-de: must be a folder, or the name of a")
    kind, message = fetch(address="http://127.0.0.1:9")
    assert kind == "WorkError" and message.startswith(f"{MODEL}: cannot be downloaded from the hub: ")
