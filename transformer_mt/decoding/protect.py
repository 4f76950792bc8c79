"""Text that passes through a translation unchanged: placeholders, tags, whatever a pattern matches."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from transformer_mt.errors import InputError


@dataclass(frozen=True)
class Span:
    """A stretch of a line."""

    text: str
    protected: bool

    @property
    def translatable(self) -> bool:
        """Whether it has anything to translate; a comma between two tags has not."""
        return not self.protected and any(map(str.isalnum, self.text))


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern; InputError if it is none, or matches nothing at all."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(f"--protect must be a regular expression, but is {pattern!r}: {error}") from None
    if compiled.match(""):
        raise InputError(f"--protect must not match the empty text, but {pattern!r} does")
    return compiled


def spans(text: str, pattern: re.Pattern[str]) -> list[Span]:
    """The line's stretches in order, protected and not."""
    found, start = [], 0
    for match in _matches(text, pattern):
        if match.start() > start:
            found.append(Span(text[start : match.start()], protected=False))
        found.append(Span(match.group(), protected=True))
        start = match.end()
    return [*found, Span(text[start:], protected=False)] if start < len(text) else found


def survived(source: str, translation: str, pattern: re.Pattern[str]) -> bool:
    """Whether all that is protected in the source stands in the translation, as often and no more."""
    wanted = Counter(match.group() for match in _matches(source, pattern))
    return wanted == Counter(match.group() for match in _matches(translation, pattern))


def _matches(text: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    return (match for match in pattern.finditer(text) if match.group())  # \b and the like match where nothing is


def rejoin(parts: list[Span], translations: list[str]) -> str:
    """The protected stretches as they were, the others translated, with the spaces that stood around them."""
    text, others = "", iter(translations)
    for span in parts:
        if span.translatable:
            before, _, after = span.text.partition(span.text.strip())
            text += before + next(others) + after
        else:
            text += span.text
    return text
