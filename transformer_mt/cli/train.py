"""transformer-mt train, and the allocator it starts with"""

import argparse
import ctypes.util
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from transformer_mt.cli.arguments import Parser, positive
from transformer_mt.errors import InputError, Interrupted, WorkError
from transformer_mt.files import to_json
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
        "--notify",
        metavar="COMMAND",
        help="run COMMAND when the training has ended or failed, with the facts as JSON on its input",
    )
    parser.add_argument(
        "--gpus",
        metavar="N",
        type=positive,
        default=1,
        help="processes on this machine, one per GPU, run by torchrun",
    )
    gpu = "a GPU is used where there is one, or else train.device=cuda says why not"
    parser.hints = {"--resume": "the same command resumes a training", "--gpu": gpu, "--cuda": gpu}
    parser.set_defaults(command=_train, is_process=False)  # whether it may start its own process again


def _train(arguments: argparse.Namespace) -> int:
    if getattr(arguments, "price", None) is not None:
        raise InputError("--price must be given with --plan, which does not train")
    if arguments.notify is None:
        return _train_here(arguments)
    notifier = Notifier(arguments.notify)
    try:
        status = _train_here(arguments)
    except BaseException as error:
        notifier.tell(arguments, error)
        raise
    notifier.tell(arguments, None, status)
    return status


class Notifier:
    """Tells a command how a training has ended. Only rank 0 has one, or the process that starts the ranks."""

    _SECONDS = 60

    def __init__(self, command: str) -> None:
        """InputError if the command cannot be started."""
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise InputError(f"--notify: the command cannot be read ({error}): {command}") from None
        if not self._words or shutil.which(self._words[0]) is None:
            raise InputError(f"--notify: must name a program that is installed, but is {command!r}")

    def tell(self, arguments: argparse.Namespace, error: BaseException | None, status: int = 0) -> None:
        """Run the command. Its failure is said, and changes nothing else."""
        if int(os.environ.get("RANK", 0)) > 0:
            return
        summary = to_json(summarize(arguments, error, status))
        try:
            done = subprocess.run(
                self._words, input=f"{summary}\n", text=True, stdout=sys.stderr, timeout=self._SECONDS
            )
            problem = f"has ended with status {done.returncode}" if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as failure:
            problem = str(failure)
        if problem:
            say(f"note: the command of --notify {problem}")


def summarize(arguments: argparse.Namespace, error: BaseException | None, status: int) -> dict[str, Any]:
    """How the training has ended, its newest update, and the scores of its best validation."""
    from transformer_mt.config.load import load_config
    from transformer_mt.run.report import best_validation, newest_step
    from transformer_mt.run_folder import RunFolder

    is_stopped = isinstance(error, (Interrupted, KeyboardInterrupt)) or status > 128
    event = "stopped" if is_stopped else "failed" if error is not None or status else "finished"
    summary: dict[str, Any] = {"event": event, "message": str(error or ""), "config": arguments.config}
    summary["host"] = socket.gethostname()
    with suppress(InputError, OSError):
        name = load_config(arguments.config, arguments.overrides).name
        run = RunFolder(arguments.out or f"runs/{name}")
        entries = run.entries()
        summary |= {"name": name, "folder": str(run), "step": newest_step(run, entries)}
        for entry in entries:
            copied = ("seconds", "tokens_per_second", "joules")
            summary |= {key: entry[key] for key in copied if entry.get(key) is not None}
        if best := best_validation(entries):
            summary |= {"best_step": best["step"], "loss": best["loss"]}
            summary["scores"] = {score["name"]: score["value"] for score in best["scores"]}
    return summary


def _train_here(arguments: argparse.Namespace) -> int:
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
