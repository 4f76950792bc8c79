"""A time measured while other programs run comes with the time without them."""

import time

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


def test_a_busy_loop_of_this_process_is_not_others_work():
    """Others may run while this test does: they have at most what its own half second leaves."""
    own = time.process_time()
    clock, used = processes._used_by_others()
    while time.process_time() - own < 0.5:
        pass
    later, used_later = processes._used_by_others()
    assert -0.1 < used_later - used <= (later - clock) * processes.usable_cores() - 0.5 + 0.1


def test_nothing_is_said_where_the_system_has_no_such_numbers(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "Path", lambda name: tmp_path / "missing")
    assert OtherPrograms().note(600.0) == ""
