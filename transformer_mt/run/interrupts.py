"""What may stop a training from outside: signals such as Ctrl-C, after which the training saves, and system
errors, which become readable messages.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import CalledProcessError
from types import FrameType, TracebackType

from transformer_mt.companion import blamed
from transformer_mt.device import is_compiler_error, is_out_of_memory
from transformer_mt.errors import WorkError, advice_on
from transformer_mt.messages import say
from transformer_mt.ranks import refuse_lost_rank


class Interrupts:
    """Context manager. The first signal only sets `received`; a second one raises KeyboardInterrupt with the
    number of the signal. While `has_work` is False, the first signal raises it already. Under torchrun, no
    signal raises.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.has_work = False
        """True after the first update of this process. Before that, nothing can be lost, and the update may
        be compiling: it would wait forever for torch's compile workers, which the same signal has ended.
        """
        self.save_requested = False
        """Whether SIGUSR1 came since the last checkpoint; the loop sets it back."""
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            hangup = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []  # not on Windows
            for number in (signal.SIGINT, signal.SIGTERM, *hangup):
                # Leave ignored signals alone, as under nohup or in the background of a script.
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._receive)
            if hasattr(signal, "SIGUSR1"):  # not on Windows
                self._previous[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._request_save)
        return self

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if not self.has_work and not _is_under_torchrun():
            raise KeyboardInterrupt(number)
        if self.received is not None:
            # torchrun forwards Ctrl-C, so each rank receives it twice: ignore the second signal
            if not _is_under_torchrun():
                raise KeyboardInterrupt(number)
            return
        self.received = signal.Signals(number)
        at_once = "" if _is_under_torchrun() else "; press again to stop at once without saving"
        say(f"stopping and saving after this update{at_once}")

    def _request_save(self, number: int, frame: FrameType | None) -> None:
        self.save_requested = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        if isinstance(error, Exception) and self._previous and _is_under_torchrun():
            # If one rank fails, torchrun stops the others. Ignore SIGTERM, so that they print their error.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _is_under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


@contextmanager
def plain_errors() -> Iterator[None]:
    """Context manager that turns system errors, compiler errors and the loss of a rank into a WorkError with
    advice.

    Do not destroy the process group after such an error: NCCL would wait for ranks that are blocked in a
    collective. The caller prints the error and ends the process.
    """
    try:
        yield
    except BrokenPipeError:  # nobody reads what is printed
        raise
    except OSError as error:
        if blamed(error):
            raise
        raise WorkError(
            f"{error.filename or 'a file'}: {error.strerror or error}; {advice_on(error)}, then run the same "
            "command to resume"
        ) from error
    except (RuntimeError, CalledProcessError) as error:
        if blamed(error):
            raise
        refuse_lost_rank(error)
        if is_compiler_error(error):
            raise WorkError(
                f"torch.compile failed: {str(error).strip().splitlines()[0]}; set train.compile=false"
            ) from None
        if is_out_of_memory(
            error
        ):  # in a validation or the optimizer; a batch of an update would have been split
            raise WorkError(
                "not enough memory; close other programs, or lower decode.batch_tokens and "
                "train.micro_batch_tokens, and run the same command to resume, or train a smaller model "
                "under another name"
            ) from None
        raise
