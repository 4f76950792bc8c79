"""The refusals of the command line of translate, before anything is loaded."""

import argparse
import os
import sys
from pathlib import Path

from transformer_mt.cli.options.ranks import has_ranks
from transformer_mt.errors import InputError


def check_options(arguments: argparse.Namespace) -> None:
    """Refuse options that exclude each other, before anything is loaded."""
    if arguments.text and arguments.input:
        raise InputError("give TEXT or --input, not both")
    if arguments.align and not arguments.json:
        raise InputError("--align requires --json, which shows it")
    if arguments.prefix is not None and arguments.prefixes:
        raise InputError("give --prefix or --prefixes, not both")
    if arguments.resume and not arguments.output:
        raise InputError("--resume requires --output FILE, which it completes")
    if arguments.resume and arguments.n_best > 1 and not arguments.json:
        raise InputError("--resume requires one line of output per input line; with --n-best use --json")
    if arguments.memory_out and not arguments.memory_out.endswith(".tmx"):
        raise InputError(f"--memory-out must end in .tmx, but is {arguments.memory_out}")
    if arguments.memory_out and (arguments.resume or has_ranks()):
        raise InputError("--memory-out requires one process for all lines: leave out --resume and torchrun")
    if arguments.output and arguments.output.endswith((".gz", ".bz2", ".xz", ".zst")):
        raise InputError(
            f"--output must be the name of a text file, but is {arguments.output}; compress it later"
        )
    if arguments.memory_out:
        _check_memory_out(arguments)
    if arguments.output:
        _check_output_is_not_input(arguments)
    elif sys.stdout is None:
        raise InputError("standard output is closed; give --output FILE")


def may_resume(arguments: argparse.Namespace) -> bool:
    """True if the command can be run again with --resume."""
    return bool(arguments.output and not arguments.memory_out and (arguments.n_best == 1 or arguments.json))


def _check_memory_out(arguments: argparse.Namespace) -> None:
    """InputError if the file of new pairs would replace another file of the same job."""
    written = Path(arguments.memory_out).resolve()
    for other in (arguments.input, arguments.output, arguments.memory, arguments.glossary):
        if other and Path(other).resolve() == written:
            raise InputError(f"--memory-out must be a separate file, but {other} is used by this command")


def _check_output_is_not_input(arguments: argparse.Namespace) -> None:
    """Opening the output empties it, and --resume cuts an incomplete last line off."""
    output = Path(arguments.output)
    if not output.is_file():
        return
    read = (arguments.input, arguments.prefixes, arguments.glossary, arguments.memory)
    sources = [os.stat(name) for name in read if name and Path(name).exists()]
    if not arguments.text and not arguments.input and sys.stdin is not None:
        sources.append(os.fstat(0))
    if any(os.path.samestat(source, os.stat(output)) for source in sources):
        raise InputError(f"{output}: the output must not be an input")
