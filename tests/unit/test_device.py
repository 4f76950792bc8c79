import pytest

from transformer_mt.device import choose_device
from transformer_mt.errors import InputError


def test_processes_must_not_share_a_gpu(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(
        InputError, match="the device must be cuda with several processes, each of which takes its own GPU"
    ):
        choose_device("cuda:0")
    assert choose_device("cpu").type == "cpu"


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cpu:1"])
def test_a_device_that_is_none_is_told(name):
    with pytest.raises(InputError, match=f"must be auto, cpu, cuda, cuda:N or mps, but is {name}"):
        choose_device(name)
