"""The YAML file that describes a language model as a teacher."""

import re
from collections.abc import Iterator
from typing import Literal, get_args

from pydantic import Field, JsonValue

from transformer_mt.config.root import NAME_PATTERN
from transformer_mt.settings.section import Conflict, Positive, Section, pattern

Check = Literal["chatter", "copy", "language", "length", "markup", "numbers", "repeating", "script"]
_ADDRESS = pattern(r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$", "an address such as http://localhost:8080/v1")
_VARIABLE = pattern(r"^[A-Za-z_][A-Za-z0-9_]*$", "the name of an environment variable, never the key itself")
_OURS = {"model", "messages", "stream", "n"}


class Price(Section):
    """Money for a million tokens, in the currency of `limit.money`."""

    input: float = Field(ge=0.0)
    """The price of prompts."""
    output: float = Field(ge=0.0)
    """The price of answers."""


class Limit(Section):
    """The most that all commands with this teacher may cost together."""

    requests: Positive | None = None
    """Requests, those that failed counted."""
    tokens: Positive | None = None
    """Tokens of prompts and answers."""
    money: float | None = Field(None, gt=0.0)
    """Money, by `price`."""
    enough: bool = False
    """At a limit, use the lines that are answered; if false, the command ends, and can be resumed."""


class LanguageModelConfig(Section):
    """The section `teacher`."""

    endpoint: str = Field(pattern=_ADDRESS)
    """The address of a server with the chat-completions interface, up to /v1."""
    model: str = Field(min_length=1)
    """The model's name there."""
    key: str | None = Field(None, pattern=_VARIABLE)
    """The environment variable that holds the key of the server; it is never written anywhere."""
    lines: Positive = 1
    """Lines in a request, which are numbered if there are several."""
    prompt: str | None = None
    """The request; {text}, {source}, {target} and {terms} are replaced in it."""
    parallel: Positive = 16
    """Requests at the same time."""
    timeout: float = Field(300.0, gt=0.0)
    """Seconds until an answer must be complete."""
    parameters: dict[str, JsonValue] = Field({})
    """Further fields of each request, such as {temperature: 0, max_tokens: 500}."""
    checks: list[Check] = Field(list(get_args(Check)))
    """What is checked of each translation."""
    candidates: Positive = 1
    """How often each line is asked for."""
    metric: str | None = None
    """What chooses among candidates and scores translations: the folder of a run with calibration.json, or a
    command that stays, as that of `rerank --external`.
    """
    glossary: str | None = None
    """A file of terms that the prompts name."""
    price: Price | None = None
    limit: Limit = Limit()

    def conflicts(self) -> Iterator[Conflict]:
        if self.candidates > 1 and self.metric is None:
            yield "metric must choose among several candidates, but is not given"
        if self.limit.money is not None and self.price is None:
            yield "price must be given with limit.money, but is not"
        if self.candidates > 1 and self.parameters.get("temperature") == 0:
            yield "parameters.temperature must be above 0 with several candidates, but is 0"
        has = set(re.findall(r"\{(\w+)\}", self.prompt or "{text}{terms}"))
        if "text" not in has:
            yield "prompt must have {text}, where the lines come, but has not"
        if self.glossary and "terms" not in has:
            yield "prompt must have {terms} with a glossary, but has not"
        if wrong := sorted(has - {"text", "source", "target", "terms"}):
            yield f"prompt must have no other names than text, source, target and terms, but has {wrong[0]}"
        if wrong := sorted(_OURS & self.parameters.keys()):
            yield f"parameters must not have {', '.join(wrong)}, which are set here"


class TeacherFile(Section):
    """The whole file."""

    name: str = Field(pattern=NAME_PATTERN)
    """By default the name of the file."""
    teacher: LanguageModelConfig
