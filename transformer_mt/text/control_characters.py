"""Control characters, which no model knows, and invisible ones, which make other words of words."""

import re
from collections.abc import Iterator

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
"""Control characters, apart from those that may end lines."""

# Unicode's default-ignorable code points: soft hyphens, marks of direction, joiners of words. Spaces of no
# width stand between the words of Thai, Lao, Burmese and Khmer; other joiners belong to scripts that join.
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]"
    "|(?<![\u0e00-\u109f\u1780-\u17ff])\u200b"
    "|(?<=[A-\u058f\u10a0-\u10ff\u1e00-\u1fff\u3040-\u9fff])[\u200c\u200d]"
)
"""Characters that are not seen, where they belong to no letter of their script."""


def as_read(text: str) -> str:
    """The text as a model gets it: control characters as spaces, without invisible ones."""
    return text if text.isascii() and text.isprintable() else CONTROL.sub(" ", INVISIBLE.sub("", text))


def seen_positions(text: str) -> list[int]:
    """Position in the text of each character of the text as it is read."""
    invisible = {match.start() for match in INVISIBLE.finditer(text)}
    return [position for position in range(len(text)) if position not in invisible]


def control_characters(source: str) -> Iterator[str]:
    """A sentence that names the control characters of a line; none where it has none."""
    if characters := dict.fromkeys(CONTROL.findall(source)):
        names = ", ".join(f"U+{ord(character):04X}" for character in characters)
        yield f"control character {names} was read as a space"
