"""Data prepared by a Ray cluster with a node of two cores, in processes of this machine."""

import hashlib
import os
import shutil
import signal
import tempfile

import pytest
import yaml

from tests.conftest import ROOT, TINY
from tests.helpers.faults import small_blocks
from transformer_mt.companions.cluster.ray_engine import RayEngine
from transformer_mt.config.data_section import PreparationConfig
from transformer_mt.config.load import load_config
from transformer_mt.errors import InputError, WorkError
from transformer_mt.preparation import prepare

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")


@pytest.fixture(scope="module")
def cluster():
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(dir="/tmp") as folder:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("RAY_TMPDIR", folder)  # Ray wants ASCII, and a short name for its sockets
        arguments = {"num_cpus": 2, "include_dashboard": False}
        nodes = cluster_utils.Cluster(initialize_head=True, head_node_args=arguments)
        patch.setenv("RAY_ADDRESS", nodes.address)
        yield nodes
        ray.shutdown()
        nodes.shutdown()


@pytest.fixture
def config(write_config, monkeypatch, tmp_path):
    small_blocks(monkeypatch, rows=150)
    data = {
        "train": [{"toy": "train", "size": 450}, {"toy": "valid", "size": 160}],
        "valid": {"from_train": {"share": 0.05, "max": 20}},
        "test": [],
        "preparation": {"folder": str(tmp_path / "shared")},
    }
    return load_config(write_config(data=data, tokenizer={"vocab_size": 320}))


def by_ray(config):
    preparation = PreparationConfig(engine="ray", folder=config.data.preparation.folder)
    return config.model_copy(update={"data": config.data.model_copy(update={"preparation": preparation})})


def files_of(config):
    """The digest of each file of the prepared data; they are removed."""
    folder = prepare(config).seen_file.parent
    files = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
    shutil.rmtree(folder)
    return files


def test_a_cluster_writes_the_same_bytes_as_one_machine(config, cluster):
    alone = files_of(config)
    assert "train-00004.arrow" in alone and not any(name.startswith(".") for name in alone)
    assert files_of(by_ray(config)) == alone
    assert not ray.is_initialized()  # training keeps nothing of the cluster


def test_a_task_whose_worker_dies_is_done_again(cluster, tmp_path):
    def task(number):
        done = tmp_path / str(number)
        if number == 3 and not done.exists():
            done.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        done.touch()

    assert sorted(RayEngine().run(task, range(4))) == list(range(4))
    assert len(list(tmp_path.iterdir())) == 4


def test_errors_are_those_of_one_machine(config, cluster):
    def refused(number):
        raise InputError("train.en:3: must be UTF-8")

    engine = RayEngine()
    with pytest.raises(InputError, match="^train.en:3: must be UTF-8$"):
        list(engine.run(refused, range(3)))
    with pytest.raises(WorkError, match="a task failed: ZeroDivisionError"):
        list(engine.run(lambda number: 1 / number, range(2)))


def test_a_cluster_that_is_not_there_is_one_line(monkeypatch):
    ray.shutdown()
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(InputError, match="RAY_ADDRESS must be a Ray cluster that runs, but 127"):
        RayEngine()


# transformer-mt prepare


def test_it_prints_where_the_data_are_and_a_training_takes_them(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    values = {**TINY, "train": {**TINY["train"], "max_updates": 2, "validate_every": 2}}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    first = cli("prepare", "tiny.yaml")
    (folder,) = (path.parent for path in tmp_path.glob("cache/*/facts.json"))
    assert (first.status, first.out) == (0, f"{folder}\n")
    assert "learning 450 bpe tokens" in first.err
    again = cli("prepare", "tiny.yaml")
    assert again.out == first.out and "learning 450" not in again.err
    trained = cli("train", "tiny.yaml")
    assert trained.status == 0 and "learning 450" not in trained.err
    elsewhere = cli("prepare", tmp_path / "tiny.yaml", f"data.preparation.folder={tmp_path / 'shared'}")
    assert elsewhere.out == f"{tmp_path / 'shared' / folder.name}\n"


def test_mistakes_are_one_line(cli, tmp_path):
    (tmp_path / "a.yaml").write_text("name: a\n", encoding="utf-8")
    for words, message in (
        (["nowhere.yaml"], "nowhere.yaml: no such config file"),
        ([tmp_path / "a.yaml", "data.preparation.engine=spark"], "must be 'local' or 'ray', but is 'spark'"),
        ([tmp_path / "a.yaml", "data.preparation.engine=ray"], "engine: ray also needs `folder`"),
    ):
        result = cli("prepare", *words)
        assert result.status == 2 and message in result.err
