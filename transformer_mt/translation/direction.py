"""The languages a model reads and writes."""

from collections.abc import Sequence

from transformer_mt.errors import InputError, Setting


def find_direction(
    directions: Sequence[tuple[str, str]], target: str, source: str | None, usual: str
) -> tuple[str, str]:
    """The source and the target language, of a model that was trained on these directions; where `source` is
    not named, it is the `usual` one or that of a corpus with this target. InputError for an unknown language.
    """
    if len({tgt for _, tgt in directions}) > 1:
        for key, language, place, verb in (("to", target, 1, "writes"), ("from", source, 0, "reads")):
            known = list(dict.fromkeys(direction[place] for direction in directions))
            if language is not None and language not in known:
                must = f" must be a language the model {verb} ({', '.join(known)}), but is {language}"
                raise InputError(Setting(key), must)
    sources = [src for src, tgt in directions if tgt == target] or [usual]
    return source or (usual if usual in sources else sources[0]), target
