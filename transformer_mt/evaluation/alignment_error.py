"""Alignment error rate of a model's attention on pairs that were aligned by hand."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.errors import InputError
from transformer_mt.evaluation.metrics import Score
from transformer_mt.text.lines import Pair, read_lines
from transformer_mt.translation.alignment import align_segment, words_between_spaces
from transformer_mt.translator import Translator

Link = tuple[int, int]
"""(source word, target word), words between white space counted from 0."""
_LINK = re.compile(r"(\d{1,6})([-?p])(\d{1,6})")


@dataclass(frozen=True)
class HandLinks:
    """The links of a pair."""

    sure: frozenset[Link]
    possible: frozenset[Link]
    """The sure ones among them."""


def read_hand_links(file: str | Path, pairs: int) -> list[HandLinks]:
    """A line for each of the pairs: `0-0 1?2`, the second a possible link (also `1p2`). InputError for
    anything else.
    """
    sentences = []
    for number, line in enumerate(read_lines(file), start=1):
        matches = [_LINK.fullmatch(link) for link in line.split()]
        if None in matches:
            raise InputError(
                f"{file}: each line must have links such as 0-0 1?2, but line {number} is "
                f"{line.strip()[:60]!r}"
            )
        links = [(match[2], (int(match[1]), int(match[3]))) for match in matches if match]
        sure = frozenset(link for kind, link in links if kind == "-")
        sentences.append(HandLinks(sure, frozenset(link for _, link in links)))
    if len(sentences) != pairs:
        raise InputError(
            f"{file}: must have a line for each of the {pairs:,} pairs, but has {len(sentences):,}"
        )
    return sentences


def alignment_error(translator: Translator, pairs: Sequence[Pair], hand: Sequence[HandLinks]) -> Score:
    """The alignment error rate in percent (Och and Ney 2003, section 6.1) of the links that the attention
    gives the words of each pair: 1 - (|A and S| + |A and P|) / (|A| + |S|).
    """
    num_links = sure = in_sure = in_possible = 0
    for links, given in zip(_links(translator, pairs), hand):
        num_links, sure = num_links + len(links), sure + len(given.sure)
        in_sure += len(links & given.sure)
        in_possible += len(links & given.possible)
    rate = 100 * (1 - (in_sure + in_possible) / max(1, num_links + sure))
    precision, recall = 100 * in_possible / max(1, num_links), 100 * in_sure / max(1, sure)
    return Score("AER", rate, f"precision {precision:.1f}, recall {recall:.1f}, of {len(pairs):,} pairs")


def _links(translator: Translator, pairs: Sequence[Pair]) -> Iterator[set[Link]]:
    tokenizer = translator.tokenizer
    sources = translator.encode_src([src for src, _ in pairs])
    targets = tokenizer.encode_tgt([tgt for _, tgt in pairs])
    attentions = translator.cross_attention(list(zip(sources, targets)))
    for (text, _), src, tgt, attention in zip(pairs, sources, targets, attentions):
        aligned = align_segment(tokenizer, text, src, tgt, attention, words_between_spaces)
        number = [{span: i for i, span in enumerate(side)} for side in (aligned.source, aligned.target)]
        yield {(number[0][source], number[1][target]) for source, target in aligned.links()}
