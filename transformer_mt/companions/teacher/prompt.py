"""A language model as a teacher: the YAML file that describes it, its prompts, and reading its answers."""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from pydantic import Field, JsonValue

from transformer_mt.config.root import NAME_PATTERN
from transformer_mt.parts import load_part
from transformer_mt.settings.section import Conflict, Positive, Section, pattern
from transformer_mt.text.languages import language_name

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
    """Requests, including failed ones."""
    tokens: Positive | None = None
    """Tokens of prompts and answers."""
    money: float | None = Field(None, gt=0.0)
    """Money, by `price`."""
    enough: bool = False
    """Whether to go on with the answered lines when a limit is reached. If false, the command ends and can be
    resumed.
    """


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
    """Scores translations, and chooses among candidates: the folder of a run with calibration.json, or a
    command that keeps running, like the command of `rerank --external`.
    """
    glossary: str | None = None
    """A file of terms that the prompts name."""
    price: Price | None = None
    limit: Limit = Limit()

    def conflicts(self) -> Iterator[Conflict]:
        if self.candidates > 1 and self.metric is None:
            yield "metric must choose among several candidates, but is not given"
        if self.limit.money is not None and self.price is None:
            yield "price must be given with limit.money"
        if self.candidates > 1 and self.parameters.get("temperature") == 0:
            yield "parameters.temperature must be above 0 with several candidates, but is 0"
        has = set(re.findall(r"\{(\w+)\}", self.prompt or "{text}{terms}"))
        if "text" not in has:
            yield "prompt must have {text}, where the lines are inserted"
        if self.glossary and "terms" not in has:
            yield "prompt must have {terms} with a glossary"
        if wrong := sorted(has - {"text", "source", "target", "terms"}):
            yield f"prompt must have no other names than text, source, target and terms, but has {wrong[0]}"
        if wrong := sorted(_OURS & self.parameters.keys()):
            yield f"parameters must not have {', '.join(wrong)}, which are set here"


class TeacherFile(Section):
    """The whole file."""

    name: str = Field(pattern=NAME_PATTERN)
    """By default the name of the file."""
    teacher: LanguageModelConfig


_ONE = "Translate from {source} to {target}. Answer with the translation alone, in one line.{terms}\n\n{text}"
_NUMBERED = (
    "Translate each numbered line from {source} to {target}. Answer with one line for each, with the same "
    "numbers, and with nothing else.{terms}\n\n{text}"
)
_ITEM = re.compile(r"\s*(\d{1,6})[.):、](?!\d)(.*)")


class Answer(NamedTuple):
    """The translation of a line, or the reason why there is none."""

    text: str
    reason: str | None = None


class Prompt:
    """Writes requests, and reads their answers."""

    def __init__(self, settings: LanguageModelConfig, languages: tuple[str, str]) -> None:
        """InputError if the glossary cannot be read."""
        self._settings = settings
        self._names = {"source": language_name(languages[0]), "target": language_name(languages[1])}
        self._glossary = (
            load_part("resource", "glossary").read(settings.glossary, languages).glossary
            if settings.glossary
            else None
        )
        self.texts = [settings.prompt] if settings.prompt else [_ONE, _NUMBERED]
        """The texts of the requests."""

    def of(self, lines: Sequence[str]) -> str:
        """The request for these lines."""
        is_numbered = self._is_numbered(lines)
        items = [f"{number}. {line}" for number, line in enumerate(lines, start=1)]
        terms = {source: target for line in lines for source, target in self.terms(line).items()}
        listed = "; ".join(f"{source} = {target}" for source, target in terms.items())
        values = {
            **self._names,
            "terms": f" Translate these terms so: {listed}." if listed else "",
            "text": "\n".join(items) if is_numbered else lines[0],
        }
        prompt = self._settings.prompt or (_NUMBERED if is_numbered else _ONE)
        return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), prompt)

    def terms(self, line: str) -> dict[str, str]:
        """The terms of the glossary that a line has, with their translations."""
        matches = self._glossary.find(line) if self._glossary else []
        return {match.source: match.targets[0] for match in matches}

    def read(self, text: str, lines: Sequence[str]) -> list[Answer]:
        """The answer for each of the lines."""
        text = text.rpartition("</think>")[2].strip()  # the thoughts of models whose server leaves them in
        if self._is_numbered(lines):
            return _items(text, len(lines))
        return [Answer(text, "chatter" if "\n" in text else None if text else "empty")]

    def _is_numbered(self, lines: Sequence[str]) -> bool:
        """Our own prompts number several lines, but not a single one. A user's prompt is the same for all
        requests, so even a single line is numbered if requests usually have several.
        """
        return len(lines) > 1 or (self._settings.lines > 1 and self._settings.prompt is not None)


def _items(text: str, count: int) -> list[Answer]:
    """Read the numbered lines of an answer. Unless their numbers are exactly 1 to `count`, none can be
    trusted. Other text is ignored before the first item and after an empty line; directly below an item, it
    makes that item chatter.
    """
    items: list[tuple[int, str]] = []
    longer: set[int] = set()
    is_behind = True
    for line in text.split("\n"):
        if match := _ITEM.fullmatch(line):
            items.append((int(match[1]), match[2].strip()))
            is_behind = False
        elif not line.strip("` \r\t"):
            is_behind = True
        elif not is_behind:
            longer.add(items[-1][0])
    if [number for number, _ in items] != list(range(1, count + 1)):
        return [Answer("", "numbering")] * count
    return [Answer(item, "chatter" if i in longer else None if item else "empty") for i, item in items]
