"""The commands. Only this package parses arguments, prints results or exits.

Results go to stdout, everything else to stderr. Exit status: 0 for success, 1 if the work failed, 2 if the
command line, YAML or data is wrong, 128 + N if stopped by signal N. Nothing slow is imported before the
arguments are parsed.
"""

import argparse
import contextlib
import io
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from transformer_mt.cli.arguments import name_by_flags, say_error, subcommands
from transformer_mt.cli.model_options import has_ranks
from transformer_mt.cli.parsers import build_parser, build_translate_parser
from transformer_mt.companion import blamed
from transformer_mt.errors import ADVICE, InputError, Interrupted, Setting, WorkError, advice_on
from transformer_mt.messages import say


def main(argv: Sequence[str] | None = None) -> int:
    """Run `transformer-mt`; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        parser = build_parser(words[0] if words else "")
    except WorkError as error:  # the command of a companion that is broken
        say_error(str(error))
        return 1
    if not words:
        build_parser().print_help()
        return 2
    if words[0] not in subcommands(parser):
        return _run(parser, build_parser().parse_args(words), argv is None)
    chosen = subcommands(parser)[words[0]]
    parser.whole = chosen.whole = build_parser
    words[1:1] = chosen.words_before(chosen)
    chosen.command_line = words[1:]
    if subcommands(chosen):  # argparse cannot intermix arguments if there are subcommands
        return _run(chosen, parser.parse_args(words), argv is None)
    # Positional words may come before, between and after the options.
    return _run(chosen, chosen.parse_intermixed_args(words[1:]), argv is None)


def translate_main(argv: Sequence[str] | None = None) -> int:
    """Run `translate`, the same as `transformer-mt translate`."""
    parser = build_translate_parser()
    return _run(parser, parser.parse_intermixed_args(argv), argv is None)


def _run(parser: argparse.ArgumentParser, arguments: argparse.Namespace, is_process: bool) -> int:
    """Run the command and return its exit status. `parser` has the names of the flags for error messages.
    `is_process`: the command has the process to itself, so it may install signal handlers.
    """
    if is_process:
        _install_signal_handlers()
        if hasattr(arguments, "is_process"):
            arguments.is_process = True
    if sys.stderr is None:  # closed (2>&-)
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # whatever the locale says
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    status = 1
    try:
        status = _status_of(parser, arguments, is_process)
    except Exception as error:
        if sentence := blamed(error):
            say_error(sentence)
        elif not (is_process and has_ranks()):
            raise
        else:
            traceback.print_exc()
    if status and is_process and has_ranks():
        _end_now(status)  # a rank that fails ends as soon as it has printed why
    return status


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any
) -> None:
    say_error(warnings.formatwarning(message, category, filename, lineno).rstrip())


def _end_now(status: int) -> NoReturn:
    """End the process without the clean-up of libraries, in which ranks would wait for each other."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError):
            stream.flush()
    os._exit(status)


def _status_of(parser: argparse.ArgumentParser, arguments: argparse.Namespace, is_process: bool) -> int:
    try:
        status = arguments.command(arguments) or 0
        if sys.stdout is not None:
            sys.stdout.flush()  # reports a full disk or a closed pipe here, not at Python's exit
        return status
    except (InputError, WorkError) as error:
        say_error(error.text(name_by_flags(parser)))
        return 2 if isinstance(error, InputError) else 1
    except Interrupted as stop:
        say(str(stop))
        return 128 + stop.signal_number
    except RuntimeError as error:
        if "torch" not in sys.modules:
            raise
        from transformer_mt.device import is_out_of_memory

        if not is_out_of_memory(error):
            raise
        advice = WorkError(
            "not enough memory; lower ", Setting("decode.batch_tokens"), " or ", Setting("decode.beam"),
            ", or close other programs",
        )  # fmt: skip
        say_error(advice.text(name_by_flags(parser)))
        return 1
    except BrokenPipeError:
        _give_up_output()  # its reader has closed it
        return 128 + 13  # SIGPIPE, which Windows does not have
    except OSError as error:
        if blamed(error):
            raise
        # A full disk or a removed folder; files that were complete are still complete.
        is_known = error.errno in ADVICE
        output = (arguments.output or "standard output") if hasattr(arguments, "output") else "a file"
        name = error.filename or (output if is_known else "")
        reason = f"{name}: {error.strerror}" if name and error.strerror else str(error)
        say_error(f"{reason}; {advice_on(error)}, then run it again")
        _give_up_output()
        return 1
    except KeyboardInterrupt as stop:
        say_how = getattr(arguments, "when_stopped", lambda _: "")  # a command may say how to go on
        say_error(f"stopped{say_how(arguments)}")
        status = 128 + (stop.args[0] if stop.args else signal.SIGINT)
        if is_process:
            _end_now(status)  # without waiting for threads that still compute
        return status


def _give_up_output() -> None:
    """If standard output cannot be written, forget what it holds: Python would try again when it ends."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _install_signal_handlers() -> None:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt; a second one ends the process at once."""

    def stop(number: int, frame: object) -> None:
        for other in ours:
            signal.signal(other, signal.SIG_DFL)
        raise KeyboardInterrupt(number)

    # Signals that the parent process ignores stay ignored. Under torchrun SIGTERM keeps its default action.
    ours = [] if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else [signal.SIGINT]
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and "WORLD_SIZE" not in os.environ:
        ours.append(signal.SIGTERM)
    for number in ours:
        signal.signal(number, stop)
