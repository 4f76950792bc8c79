"""Clean the corpora of AmericasNLP 2024, Spanish into ten languages, for configs/americasnlp.yaml.

    python scripts/americasnlp.py FOLDER [--out data/americasnlp]

FOLDER has `es-LL.train.es.gz`, `es-LL.train.LL.gz`, the same of `dev`, and where the organisers gave them
`es-LL.extra.tsv.gz` and `es-LL.synthetic.tsv.gz` (origin, Spanish, other). For each language the tables
LL.train.tsv, LL.extra.tsv, LL.synthetic.tsv, LL.valid.tsv and LL.dev.tsv are written. The validation
sentences are taken out of train; those of dev, the published test, are left as they are.

The spelling of a training text is brought to that of dev, where a rule can do so. Letters and marks of dev
were looked at for this, its sentences were not. docs/measurements/americasnlp.md has each rule's effect.
"""

import argparse
import gzip
import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

Pairs = list[tuple[str, str]]

VALID, VALID_CTP = 100, 40
"""Validation sentences per language; Chatino has 357 pairs."""
LONGEST, LONGEST_CTP = 150, 600
"""Letters of a validation source. The sentences of dev are short but Chatino's, which are paragraphs."""
LEFT_OUT = {
    "ctp": {"Mexican_constitution"},  # another Chatino language, without marks of tones
    "nah": {"udhr"},
    "oto": {"Mexican_constitution", "udhr"},  # other varieties
    "shp": {"udhr"},
}
"""Origins of extra pairs that are in another language or spelling."""
HALLUCINATED = re.compile(r"Commons|\(\?|Jeh[uú]|(ja){3}|j{3}", re.IGNORECASE)
"""Words of synthetic pairs that are no translations of one another."""


def joined(text: str) -> str:
    """The text without the spaces that a tokenizer put around marks."""
    text = re.sub(r"\s+([.,;:!?»”)\]%])", r"\1", text)
    text = re.sub(r"([¿¡«“(\[])\s+", r"\1", text)
    return " ".join(text.split())


def with_apostrophe(text: str, mark: str) -> str:
    """The text with one kind of apostrophe, which joins what stands around it."""
    return re.sub(r"(?<=\w)\s*['’‘`´ʼ]\s*(?=\w)", mark, text).replace("’", mark).replace("`", mark)


def guarani(text: str) -> str:
    """Nasal vowels have a circumflex in dev, a tilde in train."""
    letters = (c if c in "ñÑ" else unicodedata.normalize("NFD", c).replace("\u0303", "\u0302") for c in text)
    return joined(with_apostrophe(unicodedata.normalize("NFC", "".join(letters)), "'"))


def aymara(text: str) -> str:
    return joined(with_apostrophe(text, "'"))


def raramuri(text: str) -> str:
    """Train tells a trill, ŕ, from a flap, r; dev writes these r and l, and r at the beginning of a word."""
    text = re.sub(r"(?<=[\w’])r", "l", joined(with_apostrophe(text, "’")))
    return text.replace("ŕ", "r").replace("Ŕ", "R")


def shipibo(text: str) -> str:
    """Replace the missionaries' spelling (qu, c, hu, accents) by the one taught in schools (k, w)."""
    if re.search(r"[áéíóúq]|c(?!h)", text, re.IGNORECASE):
        text = text.translate(str.maketrans("áéíóúÁÉÍÓÚ", "aeiouAEIOU"))
        text = re.sub(r"qu(?=[ei])", "k", text).replace("Que", "Ke").replace("Qui", "Ki")
        text = re.sub(r"\bHu(?=[aeio])", "W", re.sub(r"hu(?=[aeio])", "w", text))
        text = re.sub(r"C(?!h)", "K", re.sub(r"c(?!h)", "k", text))
        text = text.replace("u", "o").replace("U", "O")
    return joined(text)


def nahuatl(text: str) -> str:
    """The modern spellings (k, w, s) become the classical one (c or qu, hu, z), which dev has."""
    text = "".join(c for c in unicodedata.normalize("NFD", text) if c not in "\u0304\u0301")
    text = unicodedata.normalize("NFC", text)
    if re.search(r"[kw]|\bu[aei]", text, re.IGNORECASE):
        for old, new in (
            (r"kw|ku(?=[aei])", "cu"), (r"uk\b|ukw", "uc"), (r"k(?=[ei])", "qu"), (r"K(?=[ei])", "Qu"),
            ("k", "c"), ("K", "C"), ("w", "hu"), ("W", "Hu"), (r"\bu(?=[aei])", "hu"),
            (r"(?<=[aeio])u(?=[aei])", "hu"), ("ts", "tz"), ("Ts", "Tz"), (r"s(?=[ei])", "c"), ("s", "z"),
            ("j", "h"),
        ):  # fmt: skip
            text = re.sub(old, new, text)
    text = re.sub(r"\by(?=[nchm]|pan)", "i", re.sub(r"\bY(?=[nchm]|pan)", "I", text.replace("ç", "z")))
    return joined(text)


def wixarika(text: str) -> str:
    """Lower case, with + for a vowel; extra pairs part morphemes by hyphens."""
    return " ".join(re.sub(r"[‘’]", "'", text.replace("-", "")).lower().split())


SPELLING: dict[str, Callable[[str], str]] = {
    "aym": aymara,
    "bzd": joined,
    "cni": lambda text: joined(text.replace("tz", "ts").replace("Tz", "Ts")),
    "ctp": lambda text: " ".join(text.split()),
    "gn": guarani,
    "hch": wixarika,
    "nah": nahuatl,
    "oto": joined,
    "shp": shipibo,
    "tar": raramuri,
}


def read(file: Path) -> list[str]:
    """The lines of a file. They end with LF: some have a carriage return inside."""
    with gzip.open(file, "rt", encoding="utf-8", newline="\n") as lines:
        return [line.rstrip("\n") for line in lines]


def cleaned(language: str, pairs: Iterable[tuple[str, str]]) -> Pairs:
    """Each pair once, in the spelling of dev, without those that lack a side or have two equal ones."""
    spelled = ((joined(src), SPELLING[language](tgt)) for src, tgt in pairs)
    return [(src, tgt) for src, tgt in dict.fromkeys(spelled) if src and tgt and src != tgt]


def held_out(language: str, pairs: Pairs) -> Pairs:
    """Pairs for validation, chosen by the hash of their source."""
    number, longest = (VALID_CTP, LONGEST_CTP) if language == "ctp" else (VALID, LONGEST)
    by_source = {src: tgt for src, tgt in reversed(pairs) if 10 <= len(src) <= longest}
    order = sorted(by_source, key=lambda src: hashlib.sha256(src.encode()).hexdigest())
    return [(src, by_source[src]) for src in order[:number]]


def is_plausible(src: str, tgt: str) -> bool:
    """False for a synthetic pair whose sides differ much in length, or with words that tell it is none."""
    return 0.4 < len(src) / len(tgt) < 2.5 and not HALLUCINATED.search(src + tgt)


def tables(folder: Path, language: str) -> dict[str, Pairs]:
    """The pairs of a language: train, extra, synthetic, valid and dev."""
    sides = ("es", language)
    both = {
        kind: zip(*(read(folder / f"es-{language}.{kind}.{side}.gz") for side in sides))
        for kind in ("train", "dev")
    }
    train = cleaned(language, both["train"])
    corpora = {"valid": held_out(language, train), "dev": [(" ".join(s.split()), t) for s, t in both["dev"]]}
    sources, targets = ({pair[side] for pair in corpora["valid"]} for side in (0, 1))
    corpora["train"] = train
    for kind in ("extra", "synthetic"):
        if not (file := folder / f"es-{language}.{kind}.tsv.gz").exists():
            continue
        rows = [row.split("\t") for row in read(file)]
        pairs = [(r[1], r[2]) for r in rows if len(r) == 3 and r[0].strip() not in LEFT_OUT.get(language, ())]
        corpora[kind] = cleaned(language, pairs)
    if "synthetic" in corpora:
        corpora["synthetic"] = [pair for pair in corpora["synthetic"] if is_plausible(*pair)]
    for kind in corpora.keys() & {"train", "extra", "synthetic"}:
        corpora[kind] = [
            (src, tgt) for src, tgt in corpora[kind] if src not in sources and tgt not in targets
        ]
    return {kind: pairs for kind, pairs in corpora.items() if pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("data/americasnlp"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for language in SPELLING:
        sizes = []
        for kind, pairs in sorted(tables(options.folder, language).items()):
            rows = [("es", language), *pairs]
            text = "".join("\t".join(side.replace("\t", " ") for side in row) + "\n" for row in rows)
            (options.out / f"{language}.{kind}.tsv").write_text(text, encoding="utf-8")
            sizes.append(f"{kind} {len(pairs):,}")
        print(f"{language}: {', '.join(sizes)}")


if __name__ == "__main__":
    main()
