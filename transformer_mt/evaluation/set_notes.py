"""Notes on a test set whose score would say something else than it seems to."""

from collections.abc import Iterator

from transformer_mt.corpora.evaluation_sets import EvaluationSet
from transformer_mt.errors import InputError
from transformer_mt.text.hashes import near_text, pair_key
from transformer_mt.text.languages import LanguageIdentifier, is_natural
from transformer_mt.text.scripts import script_share

_FEW, _MANY = 0.05, 0.3
"""The shares of a set from which on a note is given: of copies and repetitions, and of another language."""
_LEAST_OF_SCRIPT = 0.3
_LOOKED_AT = 200
"""Sentences whose language is identified, which takes a millisecond each."""


def notes_on_set(test: EvaluationSet, languages: tuple[str, str]) -> Iterator[str]:
    """A line for each thing that is wrong with the set; `languages` are its source and its target."""
    total = len(test.sentences)

    def note(count: int, what: str) -> str:
        return f"note: {test.corpus}: {count:,} of {total:,} {what}"

    empty = {
        "sources": sum(not src.strip() for src in test.sources),
        "references": sum(not any(text.strip() for text in texts) for texts in test.references),
    }
    yield from (note(count, f"{side} are empty") for side, count in empty.items() if count)
    pairs = [(src, "\n".join(references)) for src, references in test.sentences if src.strip()]
    repeated = len(pairs) - len({pair_key(pair) for pair in pairs})
    if repeated > _FEW * total:
        yield note(repeated, "sentences are repeated, with the same references")
    copies = sum(near_text(src) == near_text(reference) for src, reference in pairs)
    if copies > _FEW * total and all(map(is_natural, languages)):
        yield note(copies, "references copy the source")
    for side, language in zip(("sources", "references"), languages):
        texts = [text for pair in pairs if (text := pair[side == "references"]).strip()]
        texts = texts[:: -(-len(texts) // _LOOKED_AT) or 1]
        wrong = sum(_is_in_another(text, language) for text in texts)
        if wrong > _MANY * len(texts):
            yield f"note: {test.corpus}: {wrong / len(texts):.0%} of the {side} are likely not {language}"


def _is_in_another(text: str, language: str) -> bool:
    """True if the text is clearly in another language, judged by its script and, if py3langid is installed
    (extra `clean`), its words.
    """
    share = script_share(text, language)
    if share is not None and share < _LEAST_OF_SCRIPT:
        return True
    try:
        identifier = LanguageIdentifier()
        return identifier.knows(language) and identifier.is_other(text, language)
    except InputError:  # not installed
        return False
