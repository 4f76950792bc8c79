"""transformer-mt sweep"""

import argparse
import math
import signal
import time
from collections.abc import Callable

from transformer_mt.cli.arguments import Parser, positive
from transformer_mt.errors import InputError, WorkError
from transformer_mt.messages import say

_ABOUT = (
    "Train variants of one config, each with several seeds, score them, and print one table: parameters, "
    "speed, BLEU with its deviation, significance against the first. The table and a picture of the "
    "learning curves are in the sweep's folder. Rerun it to resume."
)


def add_arguments(parser: Parser) -> None:
    parser.description = _ABOUT
    parser.add_argument("sweep", metavar="SWEEP", help="YAML file that names a base config and its variants")
    parser.add_argument(
        "overrides", metavar="key=value", nargs="*", default=[], help="overrides for every variant"
    )
    parser.add_argument("--out", metavar="DIR", help="the sweep's folder (default: runs/NAME)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--jobs",
        metavar="N",
        type=positive,
        default=1,
        help="trainings in parallel, sharing the cores (default: 1)",
    )
    where.add_argument(
        "--devices", metavar="LIST", help="devices with one training each, such as cuda:0,cuda:1"
    )
    parser.set_defaults(command=_sweep)


def _seldom(write: Callable[[], object]) -> Callable[[], None]:
    """Calls `write` unless it would take more than a twentieth of the time: with many trainings a table costs
    a minute.
    """
    ended, cost = -math.inf, 0.0

    def call() -> None:
        nonlocal ended, cost
        begun = time.monotonic()
        if begun - ended >= 20 * cost:
            write()
            ended = time.monotonic()
            cost = ended - begun

    return call


def _sweep(arguments: argparse.Namespace) -> int:
    from transformer_mt.companions.lab.sweep_jobs import Runner, load_sweep
    from transformer_mt.companions.lab.sweep_table import write_table
    from transformer_mt.device import choose_device

    devices = (
        [name.strip() for name in arguments.devices.split(",")]
        if arguments.devices
        else [None] * arguments.jobs
    )
    if "" in devices:
        raise InputError(f"--devices must be names separated by commas, but is {arguments.devices}")
    for device in filter(None, devices):
        choose_device(device)  # before any training, not in each
    sweep = load_sweep(arguments.sweep, arguments.overrides, arguments.out)
    sweep.folder.mkdir(parents=True, exist_ok=True)

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    # The trainings run in sessions of their own and do not receive them
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        signal_number = getattr(signal, name, None)
        if signal_number and signal.getsignal(signal_number) is not signal.SIG_IGN:  # by nohup
            signal.signal(signal_number, stop)
    table_now = _seldom(lambda: write_table(sweep))
    try:
        failures = Runner(sweep, devices).run(done=table_now)
    except KeyboardInterrupt as stopped:
        say("stopped; run the same command to resume")
        return 128 + stopped.args[0]
    table = write_table(sweep)
    print(table or "", end="")
    if failures:
        raise WorkError(
            f"{len(failures)} of {len(sweep.jobs)} trainings failed; fix them and run the same command again"
        )
    return 0
