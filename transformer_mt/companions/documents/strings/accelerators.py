"""Accelerators: marks before the letter that chooses an entry of a menu, as in `&File`, `_File`, `Fi~le`."""

import re
from collections.abc import Callable

# `&` and `~` may stand within a word, but not between capitals (R&D); `_` there is part of a name.
_ACCELERATOR = re.compile(
    r"(?P<mark>[&~])(?!\w+[;=])(?:(?<![^\W_].)(?=[^\W\d_])|(?<=[^\W\d_].)(?=[a-z]))|(?<!\w)(?P<low>_)(?=[^\W\d_])"
)


def without_accelerator(raw: str) -> tuple[str, Callable[[str], str]]:
    """The string without its mark, and what sets one on a translation: before the same letter, at the
    beginning of a word if there is one, else before the first. A string with several, or none, stays.
    """
    places = list(_ACCELERATOR.finditer(raw))
    if len(places) != 1 or raw.count(places[0][0]) > 1:
        return raw, str
    place = places[0]
    letter = raw[place.end()].casefold()

    def marked(translation: str) -> str:
        starts = [match.start() for match in re.finditer(r"(?<![\w\\])[^\W\d_]", translation)]
        others = [i for i, character in enumerate(translation) if character.casefold() == letter]
        same = [i for i in starts if translation[i].casefold() == letter]
        same += [i for i in others if translation[:i][-1:] != "\\"]
        at = next(iter([*same, *starts]), None)
        return translation if at is None else f"{translation[:at]}{place[0]}{translation[at:]}"

    return raw[: place.start()] + raw[place.end() :], marked
