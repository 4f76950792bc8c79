"""The languages a model reads and writes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from transformer_mt.data.languages import base_code
from transformer_mt.errors import InputError, Setting

if TYPE_CHECKING:
    from transformer_mt.translation.translator import Translator


def find_direction(
    directions: Sequence[tuple[str, str]], target: str | None, source: str | None, usual: tuple[str, str]
) -> tuple[str, str]:
    """The source and the target language, of a model that was trained on these `directions`. A target that is
    not named is the `usual` one; so is a source, or it is that of a corpus with this target. `de_AT` is `de`
    where the model does not have it. InputError for a language the model does not have.
    """
    source = source and _known("from", source, [src for src, _ in directions], "reads")
    target = _known("to", target or usual[1], [tgt for _, tgt in directions], "writes")
    sources = [src for src, tgt in directions if tgt == target] or [usual[0]]
    return source or (usual[0] if usual[0] in sources else sources[0]), target


def for_set(translator: "Translator", languages: tuple[str, str]) -> "Translator":
    """The translator for a validation or test set. A model of one target language takes sets of other
    languages as they are.
    """
    try:
        return translator.towards(languages[1], languages[0])
    except InputError:
        if len({target for _, target in translator.directions}) > 1:
            raise
        return translator


def _known(key: str, language: str, known: Sequence[str], verb: str) -> str:
    """The language as the model calls it."""
    same = [each for each in known if each == language] or [
        each for each in known if base_code(each) == base_code(language)
    ]
    if not same:
        languages = ", ".join(dict.fromkeys(known))
        raise InputError(
            Setting(key), f" must be a language the model {verb} ({languages}), but is {language}"
        )
    return same[0]
