"""Lines as a request in words, and its answer as lines again."""

import re
from collections.abc import Sequence

from transformer_mt.companions.teacher.kept_answers import Answer
from transformer_mt.companions.teacher.teacher_section import LanguageModelConfig
from transformer_mt.parts import load_part
from transformer_mt.text.languages import language_name

_ONE = "Translate from {source} to {target}. Answer with the translation alone, in one line.{terms}\n\n{text}"
_NUMBERED = (
    "Translate each numbered line from {source} to {target}. Answer with one line for each, with the same "
    "numbers, and with nothing else.{terms}\n\n{text}"
)
_ITEM = re.compile(r"\s*(\d{1,6})[.):、](?!\d)(.*)")


class Prompt:
    """Writes requests, and reads their answers."""

    def __init__(self, settings: LanguageModelConfig, languages: tuple[str, str]) -> None:
        """InputError if the glossary cannot be read."""
        self._settings = settings
        self._names = {"source": language_name(languages[0]), "target": language_name(languages[1])}
        self._glossary = (
            load_part("resource", "glossary").read(settings.glossary, languages)
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
        """A prompt of the user's asks for numbers always or never; ours does not for a lone line."""
        return len(lines) > 1 or (self._settings.lines > 1 and self._settings.prompt is not None)


def _items(text: str, count: int) -> list[Answer]:
    """The numbered lines of a text. With other numbers than 1 to `count` none can be trusted. What stands
    before the first, and behind an empty line, is left out; a line that goes on below its number is chatter.
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
