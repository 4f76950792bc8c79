"""Plant faults into clean corpora and count how many `transformer-mt inspect` reports.

    python scripts/plant_faults.py en de CORPUS.tsv [CORPUS.tsv ...]

Prints a table for each table of pairs (tab-separated, .gz or not): the share that is reported of what was
planted in 1 % and in 10 % of the pairs, and the share of the pairs reported in the corpus as it is.
"""

import argparse
import gzip
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from transformer_mt.companions.inspection.checks import LeakCheck
from transformer_mt.companions.inspection.inspect import CorpusReport, build_checks, inspect_corpus
from transformer_mt.text.hashes import sentence_key
from transformer_mt.text.languages import LanguageIdentifier
from transformer_mt.text.lines import Pair

_FRENCH = [
    "Le chien traverse la rue devant la vieille maison.", "Nous avons mangé du pain avec nos amis hier soir.",
    "Elle ne sait pas encore où se trouve la gare.", "Les enfants jouent dans le jardin près de la rivière.",
    "Il faut que vous arriviez demain avant midi.", "Cette voiture rouge appartient à mon frère aîné.",
]  # fmt: skip
_RUSSIAN = [
    "Собака бежит по улице.", "Мы вчера ели хлеб с друзьями.", "Она не знает, где вокзал.",
    "Дети играют в саду у реки.", "Эта красная машина моего брата.", "Завтра будет хорошая погода.",
]  # fmt: skip
_VALIDATION = [(f"Held-out sentence number {n} of all.", f"Satz {n} von allen.") for n in range(50)]

Fault = Callable[[int, Pair], Pair]
"""(how many were planted before, pair) -> the faulty pair."""


def _other_marks(text: str) -> str:
    return text.upper().rstrip(".!?") + " !"


def _mojibake(text: str) -> str:
    return text.encode().decode("cp1252", "replace")


def _spaced(text: str) -> str:
    return re.sub(r"\s*([.,!?])", r" \1", text.rstrip(".!? ") + ".")


FAULTS: dict[str, Fault] = {
    "swapped languages": lambda n, pair: (pair[1], pair[0]),
    "wrong language": lambda n, pair: (pair[0], _FRENCH[n % 6]),
    "wrong script": lambda n, pair: (pair[0], _RUSSIAN[n % 6]),
    "source equals target": lambda n, pair: (pair[0], pair[0]),
    "damaged encoding": lambda n, pair: (pair[0], _mojibake(pair[1] + " – schön")),
    "escaped text": lambda n, pair: (f"&quot;{pair[0]}&quot;", f"&quot;{pair[1]}&quot;"),
    "tokenised text": lambda n, pair: (_spaced(pair[0]), _spaced(pair[1])),
    "markup": lambda n, pair: (f"<b>{pair[0]}</b>", pair[1]),
    "numbers that differ": lambda n, pair: (f"{pair[0]} {n + 20}", f"{pair[1]} {n + 31}"),
    "number on one side only": lambda n, pair: (f"{pair[0]} {n + 20}", pair[1]),
    "unbalanced lengths": lambda n, pair: (pair[0] * 2, pair[1][: max(2, len(pair[1]) // 3)].strip()),
    "one source, many targets": lambda n, pair: ("The page was not found.", pair[1]),
    "one target, many sources": lambda n, pair: (pair[0], "Die Seite gibt es nicht."),
    "validation or test sentences": lambda n, pair: _VALIDATION[n % 50],
}  # fmt: skip
SHIFTED, NEAR, MISALIGNED = "shifted lines", "near-duplicates", "misaligned pairs"


def planted(pairs: Sequence[Pair], fault: str, share: float, seed: int = 1) -> tuple[list[Pair], int]:
    """The corpus with a fault in so many of its pairs, and their number."""
    found, count = list(pairs), int(share * len(pairs))
    if fault == SHIFTED:
        start = len(pairs) // 3
        targets = [tgt for _, tgt in found[start : start + count]]
        rotated = [*targets[1:], targets[0]]
        found[start : start + count] = [(src, t) for (src, _), t in zip(found[start:], rotated)]
        return found, count
    rows = random.Random(seed).sample(range(1, len(pairs), 2 if fault == NEAR else 1), count)
    if fault == MISALIGNED:  # each has the target of the next
        for row, other in zip(rows, [*rows[1:], rows[0]]):
            found[row] = (pairs[row][0], pairs[other][1])
        return found, count
    for n, row in enumerate(rows):
        if fault == NEAR:  # of the row before, which has an even number and is not changed
            found[row] = (_other_marks(pairs[row - 1][0]), _other_marks(pairs[row - 1][1]))
        else:
            found[row] = FAULTS[fault](n, pairs[row])
    return found, count


def looked(pairs: Sequence[Pair], languages: tuple[str, str]) -> CorpusReport:
    """What `inspect` finds in the pairs."""
    held_out = {sentence_key(src) for src, _ in _VALIDATION}
    checks = [*build_checks(languages, LanguageIdentifier()), LeakCheck(held_out)]
    return inspect_corpus("corpus", pairs, languages, checks, is_training=True)


def reported(report: CorpusReport, fault: str) -> int:
    """The pairs that are reported to have a fault."""
    return sum(finding.pairs for finding in report.findings if finding.what == fault)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source_lang")
    parser.add_argument("target_lang")
    parser.add_argument("tables", nargs="+", type=Path)
    args = parser.parse_args()
    languages = args.source_lang, args.target_lang
    for path in args.tables:
        text = (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="\n")
        with text as file:
            rows = [line.rstrip("\r\n").split("\t") for line in file]
        pairs = [(row[0], row[1]) for row in rows]
        clean = looked(pairs, languages)
        print(f"\n{path.name}, {len(pairs):,} pairs\n\n| fault | 1 % | 10 % | as it is |\n|---|---|---|---|")
        for fault in [*FAULTS, MISALIGNED, SHIFTED, NEAR]:
            before, cells = reported(clean, fault), []
            for share in (0.01, 0.1):
                with_faults, count = planted(pairs, fault, share)
                found = reported(looked(with_faults, languages), fault)
                cells.append(f"{(found - before * (1 - share)) / count:.0%}")
            print(f"| {fault} | {cells[0]} | {cells[1]} | {before / len(pairs):.2%} |", flush=True)


if __name__ == "__main__":
    main()
