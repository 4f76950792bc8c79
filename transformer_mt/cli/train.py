"""transformer-mt train, and the allocator it starts with"""

import argparse
import ctypes.util
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from transformer_mt.cli.arguments import Parser, positive
from transformer_mt.errors import Interrupted, WorkError
from transformer_mt.messages import duration, say
from transformer_mt.parts import register, unregister


def add_arguments(parser: Parser) -> None:
    about = "Train the model of a YAML file. Rerun it to resume from the newest undamaged checkpoint."
    parser.description = about
    parser.add_argument("config", metavar="CONFIG", help="YAML file")
    parser.add_argument(
        "overrides",
        metavar="key=value",
        nargs="*",
        default=[],
        help="settings that override the file: train.max_updates=500",
    )
    parser.add_argument("--out", metavar="DIR", help="the run's folder (default: runs/NAME)")
    parser.add_argument(
        "--fresh", action="store_true", help="start over; the old run is moved aside, nothing is deleted"
    )
    parser.add_argument(
        "--monitor",
        metavar="NAME=COMMAND",
        help="choose the best checkpoint by a command that keeps running and prints a number per JSON line",
    )
    parser.add_argument(
        "--gpus",
        metavar="N",
        type=positive,
        default=1,
        help="processes on this machine, one per GPU, run by torchrun",
    )
    parser.set_defaults(command=_train, is_process=False)  # whether it may start its own process again


def _train(arguments: argparse.Namespace) -> int:
    begun = time.monotonic()
    if hasattr(signal, "SIGUSR1"):  # not on Windows
        # It would end the process. Until the first update there is nothing to save.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    with _monitor(arguments.monitor) as settings:
        from transformer_mt.config.load import load_config

        # Before torch is imported: a typo is reported at once
        config = load_config(arguments.config, [*arguments.overrides, *settings])
        if arguments.is_process:
            start_with_tcmalloc()
        if arguments.gpus > 1 and "WORLD_SIZE" not in os.environ:
            from transformer_mt.ranks import run_ranks

            options = [f"--out={arguments.out}"] if arguments.out else []
            options += ["--fresh"] if arguments.fresh else []
            options += [f"--monitor={arguments.monitor}"] if arguments.monitor else []
            return run_ranks(arguments.gpus, ["train", arguments.config, *arguments.overrides, *options])
        say(f"{config.name}: loading PyTorch")  # takes seconds
        from transformer_mt.training import train

        try:
            folder = train(config, arguments.out, arguments.fresh)
        except (WorkError, Interrupted) as error:
            if arguments.fresh and "to resume" in str(error):
                say("note: to resume, leave out --fresh, which starts over")
            raise
    from transformer_mt.run_folder import after_training

    after_training(folder)
    say(f"{config.name}: this session took {duration(time.monotonic() - begun)}")
    return 0


@contextmanager
def _monitor(option: str | None) -> Iterator[list[str]]:
    """The settings for --monitor NAME=COMMAND. While they are in use, configs can name its metric."""
    if option is None:
        yield []
        return
    from transformer_mt.cli.model_options import named_command
    from transformer_mt.evaluation.external_metric import StayingMetric

    name, command = named_command("--monitor", option)
    metric = StayingMetric(name, command)
    origin = f"{metric.signature([])} of `train --monitor {name}=COMMAND`"
    register("metric", name, lambda *_: metric, origin)
    try:
        yield [f"train.monitor={json.dumps(name)}"]
        metric.close()
    finally:
        unregister("metric", name)


_NAMES = ("tcmalloc_minimal", "tcmalloc")


def start_with_tcmalloc() -> None:
    """Replace this process by the same command with tcmalloc, if the system has it (Debian:
    libtcmalloc-minimal4). Returns if tcmalloc is already in use or cannot be used.
    """
    before = os.environ.get("LD_PRELOAD", "")
    if sys.platform != "linux" or "tcmalloc" in before or "WORLD_SIZE" in os.environ:
        return
    words = sys.argv[1:]
    if sys.orig_argv[len(sys.orig_argv) - len(words) :] != words:
        return  # the command is part of another program
    library = next(filter(None, map(ctypes.util.find_library, _NAMES)), None)
    if library is None:
        return
    os.environ["LD_PRELOAD"] = f"{library} {before}".strip()
    with suppress(OSError):
        os.execv(sys.executable, sys.orig_argv)
    os.environ["LD_PRELOAD"] = before
