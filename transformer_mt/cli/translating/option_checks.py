"""The refusals of the command line of translate, before anything is loaded."""

import os
import sys
from pathlib import Path

from transformer_mt.cli.options.ranks import has_ranks
from transformer_mt.cli.translating.request import TranslateRequest
from transformer_mt.errors import InputError


def check_options(request: TranslateRequest) -> None:
    """Refuse options that exclude each other, before anything is loaded."""
    if request.text and request.input:
        raise InputError("give TEXT or --input, not both")
    if request.align and not request.json:
        raise InputError("--align requires --json, which shows it")
    if request.prefix is not None and request.prefixes:
        raise InputError("give --prefix or --prefixes, not both")
    if request.resume and not request.output:
        raise InputError("--resume requires --output FILE, which it completes")
    if request.resume and request.n_best > 1 and not request.json:
        raise InputError("--resume requires one line of output per input line; with --n-best use --json")
    if request.memory_out and not request.memory_out.endswith(".tmx"):
        raise InputError(f"--memory-out must end in .tmx, but is {request.memory_out}")
    if request.memory_out and (request.resume or has_ranks()):
        raise InputError("--memory-out requires one process for all lines: leave out --resume and torchrun")
    if request.output and request.output.endswith((".gz", ".bz2", ".xz", ".zst")):
        raise InputError(
            f"--output must be the name of a text file, but is {request.output}; compress it later"
        )
    if request.memory_out:
        _check_memory_out(request, request.memory_out)
    if request.output:
        _check_output_is_not_input(request, Path(request.output))
    elif sys.stdout is None:
        raise InputError("standard output is closed; give --output FILE")


def _check_memory_out(request: TranslateRequest, memory_out: str) -> None:
    """InputError if the file of new pairs would replace another file of the same job."""
    written = Path(memory_out).resolve()
    for other in (request.input, request.output, request.model.memory, request.model.glossary):
        if other and Path(other).resolve() == written:
            raise InputError(f"--memory-out must be a separate file, but {other} is used by this command")


def _check_output_is_not_input(request: TranslateRequest, output: Path) -> None:
    """Raise InputError if the output is also an input: opening or resuming it would truncate it."""
    if not output.is_file():
        return
    read = (request.input, request.prefixes, request.model.glossary, request.model.memory)
    sources = [os.stat(name) for name in read if name and Path(name).exists()]
    if not request.text and not request.input and sys.stdin is not None:
        sources.append(os.fstat(0))
    if any(os.path.samestat(source, os.stat(output)) for source in sources):
        raise InputError(f"{output}: the output must not be an input")
