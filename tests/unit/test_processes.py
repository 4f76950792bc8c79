"""A time measured while other programs run comes with the time without them."""

import pytest

from tests.helpers.faults import cores, work_of_others
from transformer_mt import processes
from transformer_mt.processes import OtherPrograms


def test_the_time_alone_is_said_where_others_use_many_cores(monkeypatch):
    cores(monkeypatch, 4)
    for used, note in {
        0.0: "",
        3.0: "",  # 0.3 of 4 cores
        20.0: "; other programs use 2.0 of 4 cores: alone about 5 min",
        40.0: "; other programs use 4.0 of 4 cores: alone about 60 s",
    }.items():
        work_of_others(monkeypatch, (100.0, 7.0), (110.0, 7.0 + used))
        assert OtherPrograms().note(600.0) == note
    # A hundredth of a second in a few microseconds would be many cores.
    work_of_others(monkeypatch, (100.0, 7.0), (100.001, 7.01))
    assert OtherPrograms().note(600.0) == ""


def test_the_work_of_this_process_is_not_that_of_others(monkeypatch, tmp_path):
    stat = tmp_path / "stat"
    # user, nice, system, idle, waiting, interrupts, soft interrupts, in hundredths of a second
    stat.write_text("cpu 999 999 999 999 999 999 999\ncpu0 100 20 30 400 50 5 5\ncpu1 7 7 7 7 7 7 7\n")
    monkeypatch.setattr(processes, "Path", lambda name: stat)
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
    for own, others in ((0.0, 1.6), (0.5, 1.1)):
        monkeypatch.setattr("time.process_time", lambda own=own: own)
        assert processes._used_by_others()[1] == pytest.approx(others)


def test_nothing_is_said_where_the_system_has_no_such_numbers(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "Path", lambda name: tmp_path / "missing")
    assert OtherPrograms().note(600.0) == ""
