"""Control characters, which no model knows."""

import re
from collections.abc import Iterator

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
"""Control characters, apart from those that may end lines."""


def control_characters(source: str) -> Iterator[str]:
    """A sentence that names the control characters of a line; none where it has none."""
    if characters := dict.fromkeys(CONTROL.findall(source)):
        names = ", ".join(f"U+{ord(character):04X}" for character in characters)
        yield f"control character {names} was read as a space"
