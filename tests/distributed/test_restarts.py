"""A training on two machines whose processes are killed resumes by itself. The machines are two agents
of torchrun with two ranks each; a killed agent is started again, as a cluster does. KILLS=20 kills more.
"""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from tests.conftest import ROOT, TINY
from transformer_mt.checkpoint import load

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("KILLS", 3))
# An update of a fixed size is the same on any number of ranks.
EVERY = {"validate_every": 2000, "save_every": 20, "log_every": 1}
CHANGES = {
    "data": {**TINY["data"], "test": []},
    "model": {**TINY["model"], "dropout": 0.1},
    "train": {**TINY["train"], **EVERY, "max_updates": 200 + 70 * KILLS, "update_tokens": 1200},
}
SECONDS = 120 + 60 * KILLS


class Machine:
    """torchrun's agent of one machine, and its ranks."""

    def __init__(self, folder: Path, name: str, port: int, out: str, nnodes: str) -> None:
        self.log = folder / f"{name}.log"
        torchrun = ["-m", "torch.distributed.run", f"--nnodes={nnodes}", "--nproc-per-node=2"]
        torchrun += ["--max-restarts=100"]
        meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=job"]
        patience = "--rdzv-conf=join_timeout=120,last_call_timeout=3"
        train = ["-m", "transformer_mt", "train", "tiny.yaml", "--out", out]
        self.command = [sys.executable, *torchrun, *meeting, patience, *train]
        self.folder = folder
        self.start()

    def start(self) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with open(self.log, "ab") as log:
            self.agent = subprocess.Popen(self.command, cwd=self.folder, env=env, stdout=log, stderr=log)

    @property
    def ranks(self) -> list[int]:
        try:
            children = Path(f"/proc/{self.agent.pid}/task/{self.agent.pid}/children").read_text()
        except OSError:
            return []
        return [int(pid) for pid in children.split()]

    def lose(self) -> None:
        """The machine is gone: the agent and its ranks at once."""
        ranks = self.ranks
        self.agent.kill()
        for pid in ranks:
            kill(pid)
        self.agent.wait()

    def keep_alive(self) -> bool:
        """Start a failed agent again. Returns whether it is done."""
        status = self.agent.poll()
        if status not in (None, 0):
            self.start()
        return status == 0


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def newest(run: Path) -> int:
    names = [path.name for path in (run / "checkpoints").glob("step-*")]
    return max((int(name[5:]) for name in names if name[5:].isdigit()), default=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("restarts")
    (folder / "tiny.yaml").write_text(yaml.safe_dump({**TINY, **CHANGES}), encoding="utf-8")
    return folder


def machines(folder, out, nnodes):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [Machine(folder, f"{out}-{i}", port, out, nnodes) for i in range(2)]


def finish(both, disturb=lambda: None):
    """Run to the end, with a disturbance now and then."""
    end = time.monotonic() + SECONDS
    try:
        while True:
            done = [machine.keep_alive() for machine in both]
            if all(done):
                break
            if time.monotonic() > end:
                pytest.fail("\n".join(machine.log.read_text()[-3000:] for machine in both))
            disturb()
            time.sleep(0.1)
    finally:
        for machine in both:
            machine.lose()


def last(run):
    return load(run / "checkpoints" / f"step-{CHANGES['train']['max_updates']:08d}")


def test_killed_ranks_and_machines_end_with_the_weights_of_a_training_in_peace(folder):
    finish(machines(folder, "peace", "2"))
    rng, done, seen = random.Random(1), [], [0]
    both = machines(folder, "war", "2")

    def disturb():
        now = newest(folder / "war")
        if len(done) == KILLS or now <= seen[0]:
            return
        time.sleep(rng.random())
        seen[0] = now
        machine = rng.choice(both)
        if rng.random() < 0.3:
            machine.lose()
            done.append("machine")
        elif ranks := machine.ranks:
            kill(rng.choice(ranks))
            done.append("rank")

    finish(both, disturb)
    assert len(done) == KILLS
    left, right = last(folder / "peace"), last(folder / "war")
    for group in ("model", "optimizer"):
        for name, tensor in left.tensors[group].items():
            assert torch.equal(tensor, right.tensors[group][name]), name
    assert left.state["progress"]["tokens"] == right.state["progress"]["tokens"]


def test_a_machine_that_leaves_and_comes_back_changes_no_update(folder):
    """`--nnodes=1:2`: as many machines as there are, with the same batches in the same updates."""
    both = machines(folder, "elastic", "1:2")
    second, away = both[1], []

    def disturb():
        now = newest(folder / "elastic")
        if not away and now >= 40:
            second.lose()
            both.remove(second)  # nobody starts it again
            away.append(now)
        elif len(away) == 1 and now >= away[0] + 60:
            both.append(second)
            second.start()
            away.append(now)

    finish(both, disturb)
    assert len(away) == 2
    expected, found = tokens_by_update(folder / "peace"), tokens_by_update(folder / "elastic")
    assert found == expected and len(found) == CHANGES["train"]["max_updates"]


def tokens_by_update(run):
    entries = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {entry["step"]: entry["tokens"] for entry in entries if entry["event"] == "train"}
