"""The words of the toy language: some 200 English ones with the German forms the grammar of toy.py needs."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Noun:
    """English singular and plural; German singular, plural, and gender (m, f, n)."""

    en: str
    en_plural: str
    de: str
    de_plural: str
    gender: str


@dataclass(frozen=True)
class Verb:
    """English infinitive, third person, participle; German first and third person, infinitive, participle,
    auxiliary.

    No verb here has a separable prefix, and the German plural is the infinitive.
    """

    en: str
    en_third: str
    en_participle: str
    de_first: str
    de_third: str
    de: str
    de_participle: str
    auxiliary: str = "haben"


Row = tuple[str, ...]


def _tables() -> dict[str, list[Row]]:
    """The rows of each table in toy_words.txt."""
    tables: dict[str, list[Row]] = {}
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            rows = tables.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            rows.append(tuple(line.split("\t")))
    return tables


_TABLES = _tables()
PERSONS, THINGS = ([Noun(*row) for row in _TABLES[name]] for name in ("PERSONS", "THINGS"))
PLACES = [(en, de, Noun(*noun)) for en, de, *noun in _TABLES["PLACES"]]
TRANSITIVE, DITRANSITIVE, INTRANSITIVE, SPEECH = (
    [Verb(*row) for row in _TABLES[name]] for name in ("TRANSITIVE", "DITRANSITIVE", "INTRANSITIVE", "SPEECH")
)
ADJECTIVES, MODALS, PRONOUNS, TIMES, NUMBERS, CONJUNCTIONS = (
    _TABLES[name] for name in ("ADJECTIVES", "MODALS", "PRONOUNS", "TIMES", "NUMBERS", "CONJUNCTIONS")
)
