"""The languages a model reads and writes."""

from collections.abc import Sequence

from transformer_mt.errors import InputError, Setting
from transformer_mt.text.languages import base_code

Direction = tuple[str, str]
"""Source and target language."""


def find_direction(
    directions: Sequence[Direction], target: str | None, source: str | None, usual: Direction
) -> Direction:
    """The source and the target language, of a model that was trained on these `directions`. A target that is
    not named is the `usual` one; so is a source, or it is that of a corpus with this target. `de_AT` is `de`
    where the model does not have it. InputError for a language the model does not have.
    """
    source = source and _known("from", source, [src for src, _ in directions], "reads")
    target = _known("to", target or usual[1], [tgt for _, tgt in directions], "writes")
    sources = [src for src, tgt in directions if tgt == target] or [usual[0]]
    return source or (usual[0] if usual[0] in sources else sources[0]), target


def can_translate(directions: Sequence[Direction], has_pieces: bool, languages: Direction) -> bool:
    """True if a set of these languages is one for a model of these `directions`. A model with one target
    language and no language pieces also takes other languages, but not those of its direction reversed.
    """
    if languages in directions or languages[::-1] in directions:
        return languages in directions
    source, target = map(base_code, languages)
    sources, targets = ({base_code(code) for code in side} for side in zip(*directions))
    if source in sources and target in targets:
        return True
    return len(targets) == 1 and not has_pieces and target not in sources - targets


def name_in(known: Sequence[str], language: str) -> str | None:
    """The language as the model calls it: by this code, else by one of the same language."""
    same = [code for code in known if code == language]
    same += [code for code in known if base_code(code) == base_code(language)]
    return same[0] if same else None


def _known(key: str, language: str, known: Sequence[str], verb: str) -> str:
    """The language as the model calls it. InputError if it does not have it."""
    name = name_in(known, language)
    if name is None:
        languages = ", ".join(dict.fromkeys(known))
        raise InputError(
            Setting(key), f" must be a language the model {verb} ({languages}), but is {language}"
        )
    return name
