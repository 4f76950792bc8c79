"""The cleaning rules of `data.filter`: a small class per drop reason, and the repairs before them."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from transformer_mt.errors import InputError
from transformer_mt.settings.corpus_keys import FilterConfig
from transformer_mt.text.hashes import is_sign
from transformer_mt.text.languages import LanguageIdentifier, script_share
from transformer_mt.text.lines import Pair
from transformer_mt.text.repairs import is_escaped, is_wrongly_decoded

READ = "read"
EMPTY = "empty side"
DUPLICATE = "duplicate"
LEAKED = "in validation or test"
HELD_OUT = "held out"
COPY = "copy"
SCRIPT = "script"
LANGUAGE = "language"
NUMBERS = "numbers"
MARKUP = "markup"
ENCODING = "encoding"
LONG = "over-long"
RATIO = "length ratio"
KEPT = "kept"
ALWAYS = (EMPTY, DUPLICATE, LEAKED, LONG, RATIO, KEPT)
"""Reasons that tables show even where no pair has them."""
REASONS = (
    EMPTY, LEAKED, HELD_OUT, COPY, MARKUP, ENCODING, NUMBERS, SCRIPT, LANGUAGE, DUPLICATE, LONG,
    RATIO, KEPT,
)  # fmt: skip
"""In the order in which they are found."""


def length_reason(src_length: int, tgt_length: int, max_length: int, max_ratio: float) -> str | None:
    """Why a pair of these lengths (tokens, without end-of-sentence) is dropped, or None."""
    shorter, longer = sorted((src_length, tgt_length))
    if shorter == 0:  # nothing was left after normalisation
        return EMPTY
    if longer + 1 > max_length:
        return LONG
    # Adding 10 keeps short pairs such as "Yes." and "Yes, that is right."
    if longer > max_ratio * shorter + 10:
        return RATIO
    return None


def reason_table(counts: Counter[str]) -> str:
    """The counts as a table, one reason a line."""
    total = max(1, counts[READ])
    rows = [(name, counts[name]) for name in (READ, *REASONS) if name in (READ, *ALWAYS) or counts[name]]
    return "\n".join(f"  {name:<24}{count:>12,}  {count / total:7.2%}" for name, count in rows)


class CleaningRule(Protocol):
    """Says of a pair whether it is dropped; both sides are stripped and not empty."""

    reason: str

    def drops(self, src: str, tgt: str) -> bool: ...


class CopyRule:
    """The source equals the target, apart from capitals, spacing and punctuation."""

    reason = COPY

    def drops(self, src: str, tgt: str) -> bool:
        if src != tgt and abs(len(src) - len(tgt)) > 10:
            return False
        letters = _letters(src)  # numbers and marks alone are the same in all languages
        return bool(letters) and letters == _letters(tgt)


def _letters(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalpha() or is_sign(c))


class ScriptRule:
    """Most letters of a side are not of its language's script."""

    reason = SCRIPT
    LEAST = 0.3
    """The least share of letters in the script. It is low because a Chinese sentence may hold an English
    name, which has several times as many letters as a Chinese name.
    """

    def __init__(self, languages: tuple[str, str]) -> None:
        self._languages = languages

    def drops(self, src: str, tgt: str) -> bool:
        return any(
            (share := script_share(text, language)) is not None and share < self.LEAST
            for text, language in zip((src, tgt), self._languages)
        )


class LanguageRule:
    """A side is in another language than it should be."""

    reason = LANGUAGE

    def __init__(self, languages: tuple[str, str]) -> None:
        self._languages, self._identifier = languages, LanguageIdentifier()
        for language in languages:
            if not self._identifier.knows(language):
                raise InputError(
                    f"py3langid does not know the language {language}; set data.filter.language to false"
                )

    def drops(self, src: str, tgt: str) -> bool:
        return any(self._identifier.is_other(text, lang) for text, lang in zip((src, tgt), self._languages))


class NumbersRule:
    """Each side has a number of two or more digits that the other side has not. A number on one side only may
    be spelled as a word on the other.
    """

    reason = NUMBERS

    def drops(self, src: str, tgt: str) -> bool:
        first, second = numbers(src), numbers(tgt)
        return bool(first and second and _lacks(first, second) and _lacks(second, first))


def has_one_sided_number(src: str, tgt: str) -> bool:
    """True if only one side has a number that the other lacks; the other may spell it as a word."""
    first, second = numbers(src), numbers(tgt)
    return _lacks(first, second) != _lacks(second, first)


# Digits with the marks inside a number: 1,000.5 and 1.000,5 and 10:30.
_NUMBER = re.compile(r"\d+(?:[.,:'’/ \u00a0\u202f-]\d+)*")


def numbers(text: str) -> set[str]:
    """The numbers of two or more digits in a text, without the marks in them and without leading zeros."""
    values = set()
    for number in _NUMBER.findall(text):
        digits = "".join(str(unicodedata.decimal(c)) for c in number if c.isdecimal())
        if len(digits) > 1:
            values.add(digits.lstrip("0") or "0")
    return values


def _lacks(numbers: set[str], other: set[str]) -> bool:
    """True if one of `numbers` has no counterpart in `other`."""
    return any(not any(_may_be_same(number, candidate) for candidate in other) for number in numbers)


def _may_be_same(number: str, other: str) -> bool:
    """True if the digits are equal apart from final zeros (1.50), one number contains the other (1990s and
    90er), or both are the same time on 12- and 24-hour clocks (10 and 22, 8:30 and 20:30).
    """
    if number in other or other in number or number.rstrip("0") == other.rstrip("0"):
        return True
    if max(len(number), len(other)) > 4:
        return False
    first, second = sorted((int(number), int(other)))
    return (second <= 24 and second - first == 12) or (second <= 2400 and second - first == 1200)


class MarkupRule:
    """A side has tags or template braces."""

    reason = MARKUP
    PATTERN = re.compile(r"</?[A-Za-z][^<>]*>|<!--|\{\{|\}\}|\[\[|\]\]|\$\{\w")

    def drops(self, src: str, tgt: str) -> bool:
        return bool(self.PATTERN.search(src) or self.PATTERN.search(tgt))


class EncodingRule:
    """A side was decoded wrongly, or has control or replacement characters or HTML escapes."""

    reason = ENCODING

    def drops(self, src: str, tgt: str) -> bool:
        return any(is_escaped(text) or is_wrongly_decoded(text) for text in (src, tgt))


def rules_of(chosen: FilterConfig, languages: tuple[str, str]) -> list[CleaningRule]:
    """The rules that look at one pair at a time, the quickest first."""
    rules: list[tuple[object, Callable[[], CleaningRule]]] = [
        (chosen.copy, CopyRule),
        (chosen.markup, MarkupRule),
        (chosen.encoding, EncodingRule),
        (chosen.numbers, NumbersRule),
        (chosen.script, lambda: ScriptRule(languages)),
        (chosen.language, lambda: LanguageRule(languages)),
    ]
    return [rule() for is_on, rule in rules if is_on]


def repaired(pairs: Iterable[Pair], chosen: FilterConfig, languages: tuple[str, str]) -> Iterator[Pair]:
    """The pairs after the repairs that are asked for."""
    if chosen.encoding != "repair" and not chosen.detokenize:
        return iter(pairs)
    from transformer_mt.text.repairs import detokenizer, encoding_repair

    sides: list[list[Callable[[str], str]]] = [[], []]
    for side, steps, language in zip(("source", "target"), sides, languages):
        if chosen.encoding == "repair":
            steps.append(encoding_repair())
        if chosen.detokenize in (True, side):
            steps.append(detokenizer(language))
    return ((_apply(sides[0], src), _apply(sides[1], tgt)) for src, tgt in pairs)


def check_filter(chosen: FilterConfig, languages: tuple[str, str]) -> None:
    """InputError if a package extra is missing, or if a rule does not know a language."""
    rules_of(chosen, languages)
    repaired((), chosen, languages)


def _apply(steps: list[Callable[[str], str]], text: str) -> str:
    for step in steps:
        text = step(text)
    return text
