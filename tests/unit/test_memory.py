"""The memory a device has for this process."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.faults import system_memory
from transformer_mt import device
from transformer_mt.device import free_memory, peak_memory


def test_ranks_of_one_machine_share_its_free_memory(monkeypatch):
    gigabyte, files = 2**30, {"/proc/meminfo": ["MemTotal: 1 kB", f"MemAvailable:  {8 * 2**20} kB"]}
    system_memory(monkeypatch, files, resident=gigabyte)
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
    system_memory(monkeypatch, files, resident=gigabyte)
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
    system_memory(monkeypatch, files)
    assert free_memory(torch.device("cpu")) == int(0.8 * 2**30)


def test_this_process_uses_memory():
    assert 10 * 2**20 < peak_memory(torch.device("cpu")) < 100 * 2**30


def test_memory_that_was_given_back_is_not_counted_as_free(monkeypatch):
    """The peak of preparing the data, say: the process does not hold it any more."""
    usual = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda path, *w, **k: usual(path, *w, **k) if "self/stat" in str(path) else ""
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
    device.reset_peak(cpu)
    if (low := peak_memory(cpu)) == high:
        pytest.skip("this system does not reset the peak of a process")
    assert high - low > 0.7 * 2**30
    np.ones(2**27).sum()
    assert peak_memory(cpu) - low > 0.3 * 2**30
