"""Signals at the end of a training."""

import signal
from contextlib import nullcontext

import pytest

from transformer_mt.run.interrupts import Interrupts


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a script
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_stops_and_saves_and_the_second_names_itself(monkeypatch, number, said):
    """SIGHUP: a closed terminal."""
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    with pytest.raises(KeyboardInterrupt) as stop, Interrupts() as interrupts:
        interrupts.has_work = True
        signal.raise_signal(number)
        assert interrupts.received == number
        assert len(said) == 1 and said[0].startswith("stopping and saving after this update; press again")
        signal.raise_signal(number)
    assert stop.value.args == (number,)


def test_before_the_first_update_there_is_nothing_to_save(monkeypatch, said):
    """It may compile, by processes that the same signal ends: it would wait for them for ever."""
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    with pytest.raises(KeyboardInterrupt) as stop, Interrupts():
        signal.raise_signal(signal.SIGTERM)
    assert stop.value.args == (signal.SIGTERM,) and said == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_is_ignored_stays_so(number):
    """SIGHUP under nohup, SIGINT in the background of a shell's script."""
    before = signal.signal(number, signal.SIG_IGN)
    with Interrupts() as interrupts:
        interrupts.has_work = True
        signal.raise_signal(number)
        assert interrupts.received is None
    signal.signal(number, before)


def test_under_torchrun_nobody_is_asked_to_signal_once_more(monkeypatch, said):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    with Interrupts():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert said == ["stopping and saving after this update"]


def leave(error=None):
    with Interrupts():
        assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN)
        if error is not None:
            raise error


def test_a_rank_that_fails_has_time_to_say_why(monkeypatch):
    """Torchrun sends SIGTERM to all ranks as soon as one has failed."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    with pytest.raises(RuntimeError):
        leave(RuntimeError("another rank is gone"))
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


@pytest.mark.parametrize(
    "under_torchrun, error", [("", RuntimeError()), ("1", None), ("1", KeyboardInterrupt())]
)
def test_otherwise_signals_do_again_what_they_did(monkeypatch, under_torchrun, error):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    if not under_torchrun:
        monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with pytest.raises(type(error)) if error else nullcontext():
        leave(error)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
