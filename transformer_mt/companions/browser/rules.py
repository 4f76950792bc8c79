"""What `translate` does by rules before and after the search, as data that the page's JavaScript reads.

The patterns are those of the stages themselves (translation/stages), written as JavaScript has them.
"""

import re
from typing import Any

from transformer_mt.config import DecodeConfig
from transformer_mt.text.languages import base_code, is_natural, letter_case
from transformer_mt.text.lines import CONTROL, INVISIBLE
from transformer_mt.text.literal_text import USUAL
from transformer_mt.text.sentences import OWN_STOPS, before_words, end_pattern
from transformer_mt.translation.stages.text_stages import MIN_LETTERS, MIN_WORDS, WORD


def rules_of(source: str, target: str, decode: DecodeConfig) -> dict[str, Any]:
    """The rules of a direction, without those that the settings turn off or its languages do not have."""
    rules: dict[str, Any] = {"control": CONTROL.pattern, "invisible": INVISIBLE.pattern}
    if is_natural(source) and is_natural(target):
        rules |= {"before": before_words(source).pattern, "kept": USUAL.pattern}
        if decode.lowercase_capitals and source != target:
            rules["capitals"] = {
                "word": WORD.pattern,
                "min_words": MIN_WORDS,
                "min_letters": MIN_LETTERS,
                "source": letter_case(source),
                "target": letter_case(target),
                "keeps_i": base_code(source) == "en",
            }
    if decode.match_ends:
        rules["ends"] = {
            "source": end_pattern("").pattern,
            "target": end_pattern(target).pattern,
            "stops": OWN_STOPS.get(base_code(target), ""),
        }
    return {
        key: in_javascript(value) if isinstance(value, str) else _below(value) for key, value in rules.items()
    }


def _below(values: dict[str, Any]) -> dict[str, Any]:
    patterns = {"word", "source", "target"}
    return {
        key: in_javascript(value) if key in patterns and isinstance(value, str) else value
        for key, value in values.items()
    }


# An escape or a class, which stay as they are; or a quantifier with a + after it.
_POSSESSIVE = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|([*+?]|\{\d+(?:,\d*)?\})\+")
_IGNORING_CASE = re.compile(r"\(\?i:([^()]*)\)")


def in_javascript(pattern: str) -> str:
    """A pattern of Python's as JavaScript reads it with the flags `gu`: without possessive quantifiers, which
    only save time, and with each letter in both cases where case is ignored.
    """
    pattern = _IGNORING_CASE.sub(lambda found: f"(?:{_both_cases(found[1])})", pattern)
    pattern = _POSSESSIVE.sub(lambda found: found[1] or found[2], pattern)
    pattern = re.sub(r"\\U([0-9A-Fa-f]{8})", lambda found: f"\\u{{{int(found[1], 16):x}}}", pattern)
    pattern = re.sub(r"\\([\"'%@&<>#:;,!~`=])", r"\1", pattern)
    return "".join(f"\\u{ord(letter):04x}" if ord(letter) < 32 else letter for letter in pattern)


def _both_cases(text: str) -> str:
    return re.sub(r"[A-Za-z]", lambda found: f"[{found[0].lower()}{found[0].upper()}]", text)
