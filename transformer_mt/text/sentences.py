"""Sentence ends of a text, by sentencex, which knows abbreviations in some 300 languages."""

from collections.abc import Iterator

import regex
import sentencex

from transformer_mt.text.final_marks import FINAL_MARK
from transformer_mt.text.languages import base_code

# sentencex takes the square of the number of quotation marks in a text. Longer texts are segmented in blocks,
# which end where a sentence may.
_BLOCK = 2000
_MAY_END = regex.compile(rf"[.!?…]\s|(?![.!?…]){FINAL_MARK}|\n")


def split_sentences(text: str, lang: str) -> list[str]:
    """The sentences of a text, each with the white space after it: joined, they are the text.

    A sentence has a letter: what has none, such as the number of a list ("1. "), belongs to the sentence
    after it, or to the one before it at the end of the text.
    """
    language = base_code(lang)
    sentences: list[str] = []
    incomplete: list[str] = []
    has_letter = False
    for block, is_end in _blocks(text):
        segments = sentencex.segment(language, block)
        for number, segment in enumerate(segments, start=1):
            incomplete.append(segment)
            has_letter = has_letter or any(map(str.isalpha, segment))
            if has_letter and (is_end or number < len(segments)):
                sentences.append("".join(incomplete))
                incomplete, has_letter = [], False
    if incomplete:
        sentences[-1:] = ["".join([*sentences[-1:], *incomplete])]
    return sentences


def has_several_sentences(text: str, lang: str) -> bool:
    return len(split_sentences(text, lang)) > 1


def _blocks(text: str) -> Iterator[tuple[str, bool]]:
    """The text in blocks, each with True if a sentence may end at its end."""
    start = 0
    while len(text) - start > _BLOCK:
        end = _MAY_END.search(text, start + _BLOCK // 2, start + _BLOCK)
        stop = end.end() if end else start + _BLOCK
        yield text[start:stop], end is not None
        start = stop
    yield text[start:], True
