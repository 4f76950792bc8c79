"""Tasks of a preparation on a Ray cluster."""

import logging
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from transformer_mt.errors import InputError, UserError, WorkError

_IN_FLIGHT = 4
"""Maximum number of tasks in flight per core of the cluster."""
_SECONDS = 10
"""The wait for an answer of the cluster."""
_RETRIES = 5
"""Other tries of a task whose worker or machine has died."""


class RayEngine:
    """The cores of a cluster. Its machines must have this package, and see the corpora and the folder."""

    def __init__(self) -> None:
        address = os.environ.get("RAY_ADDRESS") or "auto"
        try:
            import ray
        except ImportError:
            raise InputError(
                "data.preparation.engine: ray needs the package ray; install the extra: "
                'pip install "transformer-mt[ray]"'
            ) from None
        self._ray: Any = ray
        self._has_joined = not ray.is_initialized()
        if not self._has_joined:
            return
        host, _, port = address.rpartition(":")
        try:
            if port.isdecimal() and "://" not in address:  # Ray would wait for minutes
                socket.create_connection((host, int(port)), _SECONDS).close()
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"RAY_ADDRESS must be a Ray cluster that runs, but {address} is not one "
                f"({reason}); start one with `ray start`, or set RAY_ADDRESS=local"
            ) from None

    def close(self) -> None:
        """Leave the cluster; one that was started for this preparation ends."""
        if self._has_joined:
            self._ray.shutdown()

    def run(self, task: Callable[[int], object], numbers: Sequence[int]) -> Iterable[int]:
        ray, waiting = self._ray, list(reversed(numbers))
        function = ray.remote(_do).options(max_retries=_RETRIES, num_cpus=1)
        of_all = ray.put(task)
        most = _IN_FLIGHT * max(1, int(ray.cluster_resources().get("CPU", 1)))
        given: dict[Any, int] = {}
        while waiting or given:
            while waiting and len(given) < most:
                number = waiting.pop()
                given[function.remote(of_all, number)] = number
            (done, *_), _ = ray.wait(list(given))
            try:
                ray.get(done)
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, UserError | OSError):
                    raise error.cause from None
                raise WorkError(f"a task failed: {error.cause!r}") from None
            except ray.exceptions.RayError as error:
                raise WorkError(
                    f"a worker of the Ray cluster has ended ({type(error).__name__}); start again: it "
                    "resumes from here"
                ) from None
            yield given.pop(done)


def _do(task: Callable[[int], object], number: int) -> None:
    task(number)
