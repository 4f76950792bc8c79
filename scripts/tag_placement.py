"""Plant markup in sentences, translate them as HTML, and count where the markup ends up.

    python scripts/tag_placement.py runs/multi30k_en_de [--sentences 300] [--layer 2] [--show 10]

The words that belong together are not taken from the model. They are pairs with
2 count(s, t) / (count(s) + count(t)) above 0.6, counted over the sentence pairs of the training corpora; both
occur once, s in the sentence and t in its translation. `<b>` is planted around one such word, around two that
follow each other, or around all words between two such pairs. A placement is exact if the tag is around
the partners and around no partner of other words.
"""

import argparse
import random
import re
from collections import Counter
from itertools import product
from pathlib import Path

from lxml import html as lxml_html

from transformer_mt.companions.documents.document_translation import translate_pieces
from transformer_mt.companions.documents.markup.html import parse_html
from transformer_mt.companions.documents.markup.marked_text import MarkedText
from transformer_mt.config import Config
from transformer_mt.model import interface
from transformer_mt.run_folder import RunFolder
from transformer_mt.text.sentences import find_words
from transformer_mt.translator import Translator

LEAST_COUNT, LEAST_ASSOCIATION = 15, 0.6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--training-pairs", type=int, default=40_000)
    parser.add_argument(
        "--show", type=int, default=0, metavar="N", help="print N placements that are not exact"
    )
    parser.add_argument("--layer", type=int, help="decoder layer whose attention is taken, from 1")
    args = parser.parse_args()
    if args.layer:
        interface.alignment_layer = lambda num_decoder_layers: args.layer - 1
    config = RunFolder(args.model).config()
    training = pairs_of(config, "train", args.training_pairs)
    partners = dictionary(training)
    translator = Translator.load(args.model)
    sources = [source for source, _ in pairs_of(config, "valid", 20 * args.sentences)]
    plain = translator.translate([re.sub(r"[<>&]", " ", source) for source in sources[: 4 * args.sentences]])
    rng = random.Random(1)
    planted = []
    for result in plain:
        if (plant := planted_in(result.source, result.translation, partners, rng)) is not None:
            planted.append(plant)
    planted = planted[: args.sentences]
    print(f"{len(partners):,} pairs of words; {len(planted)} sentences with markup")
    counts: Counter[tuple[str, str]] = Counter()
    shown = 0
    pieces = [piece for _, source, *_ in planted for piece in texts_of(source)]
    for (kind, source, inside, outside), part in zip(planted, translate_pieces(translator, pieces)):
        written = part.written
        flagged = any("alignment" in problem for problem in part.problems)
        found = outcome(source, written, inside, outside, flagged)
        counts[kind, found] += 1
        if found != "exact" and shown < args.show:
            shown += 1
            print(f"{kind}, {found}: {source}\n    {written}\n    inside {inside}, outside {outside}")
    for shown_kind in ("word", "two words", "stretch", None):
        of_kind: Counter[str] = Counter()
        for (own, found), n in counts.items():
            of_kind[found] += n if shown_kind in (own, None) else 0
        total = max(1, sum(of_kind.values()))
        shares = ", ".join(f"{name} {100 * n / total:.1f} %" for name, n in sorted(of_kind.items()) if n)
        print(f"{shown_kind or 'all':10} {total:4}: {shares}")


def texts_of(source: str) -> list[MarkedText]:
    return [piece for piece in parse_html(source) if isinstance(piece, MarkedText)]


def pairs_of(config: Config, split: str, most: int) -> list[tuple[str, str]]:
    corpora = getattr(config.data, split)
    found = []
    for corpus in corpora if isinstance(corpora, list) else [corpora]:
        for pair, _ in zip(corpus.read(config.data.languages), range(most)):
            found.append((pair[0], pair[1]))
    return found


def dictionary(pairs: list[tuple[str, str]]) -> dict[str, set[str]]:
    """Target words for each source word, in lower case."""
    sources: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    both: Counter[tuple[str, str]] = Counter()
    for source, target in pairs:
        src, tgt = set(words_of(source)), set(words_of(target))
        sources.update(src)
        targets.update(tgt)
        both.update(product(src, tgt))
    found: dict[str, set[str]] = {}
    for (word, partner), count in both.items():
        if count >= LEAST_COUNT and 2 * count / (sources[word] + targets[partner]) > LEAST_ASSOCIATION:
            found.setdefault(word, set()).add(partner)
    return found


def words_of(text: str) -> list[str]:
    return [text[begin:end].lower() for begin, end in find_words(text) if text[begin].isalnum()]


def planted_in(
    source: str, translation: str, partners: dict[str, set[str]], rng: random.Random
) -> tuple[str, str, set[str], set[str]] | None:
    """(kind, HTML, target words that must be inside, target words that must not), or None."""
    spans = [span for span in find_words(source) if source[span[0]].isalnum()]
    src, tgt = words_of(source), words_of(translation)
    known = {}
    for i, word in enumerate(src):
        same = [other for other in tgt if other in partners.get(word, ())]
        if src.count(word) == 1 and len(same) == 1 and not any(set(partners[word]) & partners.get(w, set())
                                                               for w in src if w != word):  # fmt: skip
            known[i] = same[0]
    if not known:
        return None
    first = last = rng.choice(sorted(known))
    kind = rng.choice(["word", "two words", "stretch"])
    if kind == "two words" and last + 1 in known:
        last += 1
    elif kind == "stretch" and any(first < i <= first + 5 for i in known):
        last = rng.choice([i for i in known if first < i <= first + 5])
    else:
        kind = "word"
    begin, end = spans[first][0], spans[last][1]
    html = f"{source[:begin]}<b>{source[begin:end]}</b>{source[end:]}"
    inside = {word for i, word in known.items() if first <= i <= last}
    places = sorted(tgt.index(word) for word in inside)
    between = set(tgt[places[0] : places[-1] + 1]) - inside
    if between & set(known.values()):
        return None  # the translation separates the words, as German does verbs: one tag cannot be right
    return kind, html, inside, set(known.values()) - inside


def outcome(source: str, written: str, inside: set[str], outside: set[str], flagged: bool) -> str:
    tree = lxml_html.fragment_fromstring(f"<div>{written}</div>")
    if re.findall(r"<[^>]*>", source) != re.findall(r"<[^>]*>", written) or len(tree) != 1:
        return "other tags"
    around = set(words_of(tree[0].text_content()))
    if inside <= around and not outside & around:
        return "exact"
    if flagged:
        return "at the edge, flagged"
    return "around some" if inside & around else "around others"


if __name__ == "__main__":
    main()
