"""The processes of a training find each other."""

import os

import torch.distributed as dist

from transformer_mt import ranks as ranks_module
from transformer_mt.ranks import meet


def test_a_second_attempt_knows_of_the_first(monkeypatch):
    """Torchrun keeps its store when a machine comes or goes, but counts no restart: --fresh would begin
    again.
    """
    kept = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    variables = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost", "MASTER_PORT": kept.port}
    for name, value in {**variables, "TORCHELASTIC_USE_AGENT_STORE": True}.items():
        monkeypatch.setitem(os.environ, name, str(value))
    assert [meet(1)[1:] for _ in range(2)] == [(0, False)] * 2  # a script may train twice
    monkeypatch.setattr(ranks_module, "_met", [])  # a process that torchrun has started again
    assert [meet(1)[1:] for _ in range(2)] == [(0, True)] * 2
