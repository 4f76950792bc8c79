"""The largest budget that fits the memory."""

import numpy as np
import pytest
import torch

from transformer_mt.config.load import load_config
from transformer_mt.training import batch_budget as budget
from transformer_mt.training import setup as run
from transformer_mt.training.batch_budget import free_memory, largest_budget, longest_batch, peak_memory
from transformer_mt.training.setup import open_run


@pytest.mark.parametrize(
    "constant, per_token, limit", [(1e9, 1e5, 2.4e10), (1e9, 1e6, 9e9), (9e9, 1e4, 1e10)]
)
def test_it_fills_the_memory_and_never_asks_for_more(constant, per_token, limit):
    measured = []

    def measure(tokens):
        measured.append(tokens)
        return int(constant + per_token * tokens)

    tokens = largest_budget(measure, int(limit), least=1024)
    assert tokens % 512 == 0
    assert limit - 512 * per_token * 1.01 <= constant + per_token * tokens <= limit
    assert all(constant + per_token * tried <= limit for tried in measured)


def test_a_device_that_cannot_hold_the_least_gets_the_least():
    assert largest_budget(lambda tokens: 10**10, limit=10**9, least=1024) == 1024


def test_a_peak_that_was_there_before_does_not_mislead():
    assert largest_budget(lambda tokens: int(max(3e9, 1e9 + 1e5 * tokens)), int(2.4e10), least=1024) > 220_000


def test_memory_without_end_still_leaves_updates_to_learn_from():
    assert largest_budget(lambda tokens: tokens, limit=10**15, least=1024) == 2**19


def test_the_batch_tried_is_of_the_longest_sentences():
    batch = longest_batch(np.array([5, 9]), np.array([12, 3]), 600)
    assert tuple(batch.src.shape) == tuple(batch.tgt_in.shape) == (50, 12)
    assert batch.num_tokens == 600


def test_ranks_of_one_machine_share_its_free_memory(monkeypatch):
    gigabyte, files = 2**30, {"/proc/meminfo": ["MemTotal: 1 kB", f"MemAvailable:  {8 * 2**20} kB"]}
    monkeypatch.setattr(budget, "_lines", lambda path: files.get(path, []))
    monkeypatch.setattr(budget, "_resident", lambda: gigabyte)
    assert free_memory(torch.device("cpu")) == int(0.8 * 9 * gigabyte)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert free_memory(torch.device("cpu")) == int(0.8 * 3 * gigabyte)


@pytest.mark.parametrize(
    "group, root, names",
    [
        ("0::/job/step", "/sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")),
        (
            "4:cpu,memory:/job/step",
            "/sys/fs/cgroup/memory",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
)
@pytest.mark.parametrize("place", ["", "/job", "/job/step"])
def test_memory_that_a_control_group_forbids_is_not_free(monkeypatch, group, root, names, place):
    """A container's, a service's or a batch job's limit, its own or of a group around it."""
    gigabyte = 2**30
    files = {
        "/proc/meminfo": [f"MemAvailable:  {8 * 2**20} kB"],
        "/proc/self/cgroup": ["2:pids:/elsewhere", group],
    }
    monkeypatch.setattr(budget, "_lines", lambda path: files.get(path, []))
    monkeypatch.setattr(budget, "_resident", lambda: gigabyte)
    most, used, cached = names
    files |= {f"{root}{place}/{most}": [str(6 * gigabyte)], f"{root}{place}/{used}": [str(3 * gigabyte)]}
    assert free_memory(torch.device("cpu")) == int(0.8 * 4 * gigabyte)
    files[f"{root}{place}/memory.stat"] = ["anon 17", f"{cached} {gigabyte}"]
    assert free_memory(torch.device("cpu")) == int(0.8 * 5 * gigabyte)
    files[f"{root}{place}/{most}"] = ["max"]
    assert free_memory(torch.device("cpu")) == int(0.8 * 9 * gigabyte)


def test_what_a_control_group_says_in_other_words_stops_nothing(monkeypatch):
    files = {
        "/proc/meminfo": [f"MemAvailable:  {2**20} kB"],
        "/proc/self/cgroup": ["", "1", "0::/a:b"],
        "/sys/fs/cgroup/a:b/memory.max": ["many"],
        "/sys/fs/cgroup/memory.max": [str(2**40)],
        "/sys/fs/cgroup/memory.current": ["5"],
        "/sys/fs/cgroup/memory.stat": ["", "nonsense", "inactive_file 7"],
    }
    monkeypatch.setattr(budget, "_lines", lambda path: files.get(path, []))
    monkeypatch.setattr(budget, "_resident", lambda: 0)
    assert free_memory(torch.device("cpu")) == int(0.8 * 2**30)


def test_this_process_uses_memory():
    assert 10 * 2**20 < peak_memory(torch.device("cpu")) < 100 * 2**30


def measuring(answer):
    """Stands in for the search: measures as it would, and answers what the test wants."""
    return lambda measure, limit, least: (measure(least), measure(2 * least), answer)[-1]


def test_auto_is_found_once_and_written_down(write_config, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "largest_budget", measuring(1536))
    said = []
    monkeypatch.setattr(run, "say_on_rank_zero", said.append)
    config = load_config(write_config(train={"batch_tokens": "auto"}))
    opened = open_run(config, tmp_path / "run")
    assert opened.config.train.batch_tokens == 1536
    assert any("train.batch_tokens: auto is 1,536 here" in text for text in said)
    assert "batch_tokens: 1536" in (tmp_path / "run" / "config.yaml").read_text(encoding="utf-8")
    opened.updater.update(opened.batches.next_update(), 0.001)
    opened.progress.step = 1
    opened.save()
    opened.close()
    monkeypatch.setattr(run, "find_budget", None)  # would raise
    assert open_run(config, tmp_path / "run").config.train.batch_tokens == 1536


def test_finding_it_changes_nothing_of_the_training(write_config, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "largest_budget", measuring(600))
    given = open_run(load_config(write_config(train={"batch_tokens": 600})), tmp_path / "given")
    found = open_run(load_config(write_config(train={"batch_tokens": "auto"})), tmp_path / "found")
    for left, right in zip(given.model.parameters(), found.model.parameters()):
        assert torch.equal(left, right)
    assert torch.equal(given.batches.next_update()[0].src, found.batches.next_update()[0].src)


def test_memory_that_was_given_back_is_not_counted_as_free(monkeypatch):
    """The peak of preparing the data, say: the process does not hold it any more."""
    lines = budget._lines
    monkeypatch.setattr(
        budget, "_lines", lambda path: [] if "meminfo" in path or "cgroup" in path else lines(path)
    )
    cpu = torch.device("cpu")
    before = free_memory(cpu)
    large = np.ones(2**27)  # one gigabyte
    held = free_memory(cpu)
    del large
    assert held - before > 0.7 * 2**30
    assert abs(free_memory(cpu) - before) < 0.1 * 2**30


def test_the_peak_counts_from_its_reset():
    cpu = torch.device("cpu")
    np.ones(2**27).sum()
    high = peak_memory(cpu)
    budget.reset_peak(cpu)
    if (low := peak_memory(cpu)) == high:
        pytest.skip("this system does not reset the peak of a process")
    assert high - low > 0.7 * 2**30
    np.ones(2**27).sum()
    assert peak_memory(cpu) - low > 0.3 * 2**30
