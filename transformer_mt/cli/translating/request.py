"""A request of `translate`: its options, which of them go together, and where its results also go."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from transformer_mt.cli.options.model_options import ModelRequest
from transformer_mt.companion import hooks
from transformer_mt.errors import InputError

if TYPE_CHECKING:
    from transformer_mt.translator import Translator


@dataclass(frozen=True)
class TranslateRequest:
    """A request of the command: the model, the text, and how the translations are written."""

    model: ModelRequest
    text: tuple[str, ...]
    input: str | None
    """The file of sentences; None is standard input, unless there is `text`."""
    output: str | None
    """The file of translations; None is standard output."""
    format: str | None
    resume: bool
    n_best: int
    json: bool
    align: bool
    prefix: str | None
    prefixes: str | None
    tag: str | None
    protect: str | None
    retry: bool
    others: Mapping[str, Any]
    """All values of the command line, for the options that companions add."""

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "TranslateRequest":
        names = cls.__dataclass_fields__.keys() - {"model", "text", "others"}
        values = {name: getattr(arguments, name) for name in names}
        return cls(ModelRequest.of(arguments), tuple(arguments.text), others=vars(arguments), **values)

    @property
    def may_resume(self) -> bool:
        """True if the command can be run again with --resume."""
        return bool(self.output and not records_of(self) and (self.n_best == 1 or self.json))


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
    if request.output and request.output.endswith((".gz", ".bz2", ".xz", ".zst")):
        raise InputError(
            f"--output must be the name of a text file, but is {request.output}; compress it later"
        )
    for record in records_of(request):
        record.check(request)
    if request.output:
        _check_output_is_not_input(request, Path(request.output))
    elif sys.stdout is None:
        raise InputError("standard output is closed; give --output FILE")


def _check_output_is_not_input(request: TranslateRequest, output: Path) -> None:
    """Raise InputError if the output is also an input: opening or resuming it would truncate it."""
    if not output.is_file():
        return
    read = (request.input, request.prefixes, *request.model.resources.values())
    sources = [os.stat(name) for name in read if name and Path(name).exists()]
    if not request.text and not request.input and sys.stdin is not None:
        sources.append(os.fstat(0))
    if any(os.path.samestat(source, os.stat(output)) for source in sources):
        raise InputError(f"{output}: the output must not be an input")


class TranslationRecord(Protocol):
    """Where translations go besides the output: what a companion's hook `record_translations` gives for a
    request that asks for it.
    """

    def check(self, request: TranslateRequest) -> None:
        """InputError, before any work, if its options do not go together with the others."""
        ...

    def open(self, languages: tuple[str, str]) -> AbstractContextManager[Callable[[str, str], None]]:
        """A function that is called with each source text and its translation."""
        ...


def records_of(request: TranslateRequest) -> list[TranslationRecord]:
    return [record for hook in hooks("record_translations") if (record := hook(request)) is not None]


def open_records(
    request: TranslateRequest, translator: "Translator", files: ExitStack
) -> Callable[[str, str], None]:
    """A function that adds a source text and its translation to all records."""
    languages = translator.source_lang, translator.target_lang
    adders = [files.enter_context(record.open(languages)) for record in records_of(request)]

    def add(source: str, translation: str) -> None:
        for adder in adders:
            adder(source, translation)

    return add
