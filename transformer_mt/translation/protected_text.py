"""Text that passes through a translation unchanged: placeholders, tags, whatever a pattern matches."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from transformer_mt.errors import InputError, Setting
from transformer_mt.translation.splitting import LONE_CR
from transformer_mt.translation.usual_protection import USUAL, may_match, number_with_unit

_USUAL = re.compile(USUAL)
_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)[^>]*?(/?)>")


@dataclass(frozen=True)
class Span:
    """Part of a text."""

    text: str
    protected: bool

    @property
    def translatable(self) -> bool:
        """Whether it has anything to translate; a comma between two tags has not."""
        return not self.protected and any(map(str.isalpha, self.text))


class ProtectedText:
    """What a regular expression matches in the source, and whether a translation has kept it."""

    def __init__(self, pattern: str | None, usual: bool = False) -> None:
        """With `usual` also addresses, placeholders, tags and numbers with units. InputError if `pattern` is
        no regular expression, or matches the empty text.
        """
        self._own = _compiled(pattern) if pattern else None
        self._is_usual = usual

    def is_in(self, text: str) -> bool:
        return next(self._matches(text), None) is not None

    def find(self, text: str) -> list[tuple[int, int]]:
        """Where the protected text is: (begin, end) of each match."""
        return [match.span() for match in self._matches(text)]

    def spans(self, text: str) -> list[Span]:
        """The text in order, cut where protected text begins and ends."""
        found, start = [], 0
        for match in self._matches(text):
            if match.start() > start:
                found.append(Span(text[start : match.start()], protected=False))
            found.append(Span(match.group(), protected=True))
            start = match.end()
        return [*found, Span(text[start:], protected=False)] if start < len(text) else found

    def survived(self, source: str, translation: str) -> bool:
        """Whether the translation has the protected text of the source, each match the same number of times,
        and with opening tags still before their closing tags. Placeholders may change their order, as
        languages do.
        """
        (wanted, numbers), (found, others) = self._items(source), self._items(translation)
        is_same = Counter(wanted) == Counter(found) and _tag_pairs(wanted) == _tag_pairs(found)
        return is_same and not numbers - others  # "20 percent" may have become another "20 %"

    def rejoin(self, spans: Sequence[Span], translations: Sequence[str]) -> str:
        """The protected spans as they were, the others translated, with the spaces around them."""
        text, others = "", iter(translations)
        for span in spans:
            if span.translatable:
                before, _, after = span.text.partition(span.text.strip())
                text += before + next(others) + after
            else:
                text += span.text
        return LONE_CR.sub(" ", text)

    def _items(self, text: str) -> tuple[list[str], Counter[str]]:
        """The matches, and apart from them the numbers with units."""
        others, numbers = [], Counter[str]()
        for match in self._matches(text):
            if self._is_usual and (number := number_with_unit(match.group())):
                numbers[number] += 1
            else:
                others.append(match.group())
        return others, numbers

    def _matches(self, text: str) -> Iterator[re.Match[str]]:
        """The matches from left to right, without overlaps; of two at one position the user's pattern wins.
        Two patterns are searched, because a joint one takes milliseconds to compile.
        """
        own = self._own.finditer(text) if self._own else ()
        usual = _USUAL.finditer(text) if self._is_usual and may_match(text) else ()
        end = 0
        for match in sorted((*own, *usual), key=lambda match: match.start()):  # stable
            if match.group() and match.start() >= end:  # \b and the like match nothing
                end = match.end()
                yield match


def has_words(text: str, protected: "ProtectedText | None" = None) -> bool:
    """Whether there is anything to translate: a letter of any script, outside of addresses, placeholders,
    numbers with units, and what else is protected.
    """
    if not any(map(str.isalpha, text)):
        return False
    if (protected is None or not protected.is_in(text)) and not may_match(text):
        return True
    kept = [*(protected.find(text) if protected else ()), *(match.span() for match in _USUAL.finditer(text))]
    letters = list(text)
    for begin, end in kept:
        letters[begin:end] = " " * (end - begin)
    return any(map(str.isalpha, letters))


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(
            Setting("protect"), f" must be a regular expression, but is {pattern!r}: {error}"
        ) from None
    if compiled.match(""):
        raise InputError(Setting("protect"), f" must not match the empty text, but {pattern!r} does")
    return compiled


def _tag_pairs(items: Sequence[str]) -> Counter[tuple[str, str]]:
    """Opening tags with the closing tag that ends each, counted, and tags without a partner, alone.

    `<b>` and `</b>` are a pair; `</b>` before `<b>` are two single tags, so that an exchanged pair is another
    count.
    """
    pairs: Counter[tuple[str, str]] = Counter()
    opened: list[tuple[str, str]] = []
    for item in items:
        tag = _TAG.fullmatch(item)
        if tag is None or tag[3]:  # no tag, or one that closes itself
            continue
        if not tag[1]:
            opened.append((tag[2], item))
            continue
        partner = next((i for i in reversed(range(len(opened))) if opened[i][0] == tag[2]), None)
        pairs[(opened.pop(partner)[1] if partner is not None else "", item)] += 1
    pairs.update((item, "") for _, item in opened)
    return pairs


def spans_of(protected: ProtectedText | None, text: str) -> list[tuple[int, int]]:
    """The (begin, end) characters of protected text; none without it."""
    return protected.find(text) if protected else []
