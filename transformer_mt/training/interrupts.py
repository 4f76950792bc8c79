"""Signal handlers: Ctrl-C and SIGTERM make the training loop save and stop after the current update."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType


class Interrupts:
    """Context manager. The first signal only sets `received`; a second Ctrl-C raises KeyboardInterrupt."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            # torchrun forwards Ctrl-C, so each rank receives it twice: ignore the second signal
            if "TORCHELASTIC_RUN_ID" not in os.environ:
                raise KeyboardInterrupt
            return
        self.received = signal.Signals(number)
        self._say("stopping and saving after this update; once more to stop at once and save nothing")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
