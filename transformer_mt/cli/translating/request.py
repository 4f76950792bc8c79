"""The request of `translate`: its command line, parsed once."""

import argparse
from dataclasses import dataclass

from transformer_mt.cli.options.model_options import ModelRequest


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
    memory_out: str | None
    protect: str | None
    retry: bool
    attributes: bool
    """Only for HTML."""

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "TranslateRequest":
        names = cls.__dataclass_fields__.keys() - {"model", "text", "attributes"}
        values = {name: getattr(arguments, name) for name in names}
        attributes = getattr(arguments, "attributes", True)
        return cls(ModelRequest.of(arguments), tuple(arguments.text), attributes=attributes, **values)

    @property
    def may_resume(self) -> bool:
        """True if the command can be run again with --resume."""
        return bool(self.output and not self.memory_out and (self.n_best == 1 or self.json))
