"""Signals at the end of a training."""

import signal

import pytest

from transformer_mt.training.interrupts import Interrupts


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def leave(error=None):
    with Interrupts(lambda text: None):
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
    "under_torchrun, error", [(False, RuntimeError()), (True, None), (True, KeyboardInterrupt())]
)
def test_otherwise_signals_do_again_what_they_did(monkeypatch, under_torchrun, error):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    if under_torchrun:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    if error is None:
        leave()
    else:
        with pytest.raises(type(error)):
            leave(error)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
