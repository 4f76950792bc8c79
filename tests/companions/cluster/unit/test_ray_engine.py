"""Data prepared by a Ray cluster of two nodes, which are processes of this machine."""

import hashlib
import os
import shutil
import signal

import pytest
import ray
from pydantic import ValidationError
from ray.cluster_utils import Cluster

from tests.conftest import ROOT
from tests.helpers.faults import small_blocks
from transformer_mt.companions.cluster.ray_engine import RayEngine
from transformer_mt.config.data_section import PreparationConfig
from transformer_mt.config.load import load_config
from transformer_mt.errors import InputError, WorkError
from transformer_mt.preparation import prepare


@pytest.fixture(scope="module")
def cluster():
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", nodes.address)
        yield nodes
    ray.shutdown()
    nodes.shutdown()
    os.environ.pop("PYTHONPATH") if path is None else os.environ.update(PYTHONPATH=path)


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

    assert sorted(RayEngine().run(task, range(6))) == list(range(6))
    assert len(list(tmp_path.iterdir())) == 6


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


def test_a_cluster_needs_a_folder_that_all_machines_see():
    with pytest.raises(ValidationError, match="engine: ray needs the key folder"):
        PreparationConfig(engine="ray")
