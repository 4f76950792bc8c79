"""The built-in English-German toy language: generated, deterministic, and honest about what is new in its
test set.

The grammar has what makes German hard for a machine: articles and adjectives that agree in gender, number and
case, the verb second in main clauses and last in subordinate ones, the verb bracket, nicht and kein, and
numbers.

Two kinds of combination are shared out among the splits by a hash: adjective with noun, and verb with object.
One in twelve belongs to the test set and one in twelve to the validation set. A training sentence has none of
these; every test sentence has at least one of its own. So neither a test sentence
nor the combination that it asks for occurs in training.
"""

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from transformer_mt.corpora.corpus import Corpus, Languages
from transformer_mt.errors import InputError
from transformer_mt.settings.section import Positive
from transformer_mt.text.hashes import text_key
from transformer_mt.text.lines import Pair


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
    for line in Path(__file__).with_name("toy_words.txt").read_text(encoding="utf-8").splitlines():
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


VERSION = 1  # raise it when a change alters any generated sentence

SIZES = {"train": 40_000, "valid": 500, "test": 500}

# Endings by case for masculine, feminine, neuter, plural.
_DEFINITE = {"nom": "der die das die", "acc": "den die das die", "dat": "dem der dem den"}
_INDEFINITE = {"nom": "ein eine ein", "acc": "einen eine ein", "dat": "einem einer einem"}
_NO = {"nom": "kein keine kein keine", "acc": "keinen keine kein keine", "dat": "keinem keiner keinem keinen"}
_AFTER_DEFINITE = {"nom": "e e e en", "acc": "en e e en", "dat": "en en en en"}
_AFTER_INDEFINITE = {"nom": "er e es en", "acc": "en e es en", "dat": "en en en en"}
_ALONE_PLURAL = {"nom": "e", "acc": "e", "dat": "en"}


class ToyCorpus(Corpus):
    """The built-in English-German toy language."""

    KEYS: ClassVar[tuple[str, ...]] = ("toy",)
    EXAMPLE: ClassVar[str] = "{toy: ...}"

    toy: Literal["train", "valid", "test"]
    """One of its three disjoint splits."""
    size: Positive | None = None
    """Number of pairs; by default 40,000 for train, 500 for valid and test."""

    def describe(self) -> str:
        return f"toy {self.toy}"

    @property
    def is_public(self) -> bool:
        return True

    def stored_pairs(self, languages: Languages) -> Iterator[Pair]:
        if {language.lower() for language in languages} != {"en", "de"}:
            raise InputError(
                f"the toy language has en and de, but data asks for {languages[0]} and {languages[1]}"
            )
        pairs = generate(self.toy, self.size)
        return pairs if languages[0].lower() == "en" else ((de, en) for en, de in pairs)

    def identity(self) -> dict[str, Any]:
        facts = super().identity()
        del facts["files"]  # keeps caches from before this key valid
        return facts | {"toy_version": VERSION}


def generate(split: str, size: int | None = None) -> Iterator[tuple[str, str]]:
    """`size` distinct (English, German) pairs of the split, always the same ones in the same order."""
    rng = random.Random(f"toy {VERSION} {split}")
    seen: set[int] = set()
    remaining = SIZES[split] if size is None else size
    while remaining:
        sentence = _Sentence(rng)
        english, german = sentence.pair()
        owners = {_owner(combination) for combination in sentence.combinations}
        if not (owners == {"train"} if split == "train" else split in owners and owners <= {"train", split}):
            continue
        key = text_key(english)
        if key not in seen:
            seen.add(key)
            remaining -= 1
            yield english, german


def _owner(combination: tuple[str, str]) -> str:
    """The split in which this combination of two words is met for the first time."""
    return {0: "test", 1: "valid"}.get(zlib.crc32(" ".join(combination).encode()) % 12, "train")


@dataclass(frozen=True)
class _Phrase:
    """A subject or object in both languages, and the person the verb must agree with."""

    en: str
    de: str
    person: str = "third"


@dataclass
class _Clause:
    """The German parts of a clause in their middle-field order, and the English whole."""

    subject: str
    finite: str
    middle: list[str]
    final: list[str]
    english: str

    def main(self) -> str:
        return " ".join([self.subject, self.finite, *self.middle, *self.final])

    def after(self, first: str) -> str:
        """Something else comes first; the verb stays second."""
        return " ".join([first, self.finite, self.subject, *self.middle, *self.final])

    def subordinate(self) -> str:
        """The finite verb goes last."""
        return " ".join([self.subject, *self.middle, *self.final, self.finite])


@dataclass
class _Sentence:
    rng: random.Random
    combinations: list[tuple[str, str]] = field(default_factory=list)

    def pair(self) -> tuple[str, str]:
        form = self.rng.random()
        if form < 0.4:
            clause = self._clause()
            english, german = clause.english, clause.main()
        elif form < 0.6:
            clause = self._clause(with_time=False)
            time_en, time_de = self.rng.choice(TIMES)
            english, german = f"{time_en} {clause.english}", clause.after(time_de)
        elif form < 0.75:
            speaker, clause = self._subject(), self._clause()
            verb = self.rng.choice(SPEECH)
            english = f"{speaker.en} {_english(verb, speaker)} that {clause.english}"
            german = f"{speaker.de} {_german(verb, speaker)}, dass {clause.subordinate()}"
        else:
            main, side = self._clause(with_time=False), self._clause(with_time=False)
            conj_en, conj_de = self.rng.choice(CONJUNCTIONS)
            if form < 0.9:
                english = f"{main.english} {conj_en} {side.english}"
                german = f"{main.main()}, {conj_de} {side.subordinate()}"
            else:
                english = f"{conj_en} {side.english}, {main.english}"
                german = f"{conj_de} {side.subordinate()}, {main.after('').strip()}"
        return english[0].upper() + english[1:] + ".", german[0].upper() + german[1:] + "."

    def _subject(self) -> _Phrase:
        if self.rng.random() < 0.25:
            return _Phrase(*self.rng.choice(PRONOUNS))
        return self._noun_phrase(self.rng.choice(PERSONS), "nom")

    def _noun_phrase(self, noun: Noun, case: str, article: str | None = None) -> _Phrase:
        """Article or number, sometimes an adjective, and the noun, in agreement."""
        rng = self.rng
        article = article or rng.choices(["definite", "indefinite", "number"], [6, 3, 2])[0]
        plural = article == "number" or (article != "indefinite" and rng.random() < 0.3)
        column = 3 if plural else "mfn".index(noun.gender)
        if article == "definite":
            en_article, de_article, endings = (
                "the",
                _DEFINITE[case].split()[column],
                _AFTER_DEFINITE[case].split(),
            )
        elif article == "no":
            en_article, de_article, endings = "no", _NO[case].split()[column], _AFTER_INDEFINITE[case].split()
        elif article == "indefinite":
            en_article, de_article, endings = (
                "a",
                _INDEFINITE[case].split()[column],
                _AFTER_INDEFINITE[case].split(),
            )
        else:
            (en_article, de_article), endings = rng.choice(NUMBERS), [_ALONE_PLURAL[case]] * 4
        en_words, de_words = [noun.en_plural if plural else noun.en], [noun.de_plural if plural else noun.de]
        if plural and case == "dat" and not de_words[0].endswith(("n", "s")):
            de_words[0] += "n"
        if rng.random() < 0.5:
            adjective, stem = rng.choice(ADJECTIVES)
            self.combinations.append((adjective, noun.en))
            en_words.insert(0, adjective)
            de_words.insert(0, stem + endings[column])
        if en_article == "a" and en_words[0][0] in "aeiou":
            en_article = "an"
        return _Phrase(
            " ".join([en_article, *en_words]),
            " ".join([de_article, *de_words]),
            "plural" if plural else "third",
        )

    def _clause(self, with_time: bool = True) -> _Clause:
        """A subject, a verb in one of three tenses or moods, its objects, and perhaps a negation, a time and
        a place.
        """
        rng = self.rng
        subject = self._subject()
        kind = rng.choices(["transitive", "intransitive", "ditransitive"], [5, 3, 2])[0]
        negated = rng.random() < 0.25
        objects: list[_Phrase] = []
        no_object = False
        if kind == "transitive":
            verb = rng.choice(TRANSITIVE)
            no_object = negated and rng.random() < 0.5
            thing = rng.choice(THINGS if rng.random() < 0.7 else PERSONS)
            self.combinations.append((verb.en, thing.en))
            objects = [
                self._noun_phrase(thing, "acc", "no" if no_object else "definite" if negated else None)
            ]
        elif kind == "ditransitive":
            verb = rng.choice(DITRANSITIVE)
            thing = rng.choice(THINGS)
            self.combinations.append((verb.en, thing.en))
            receiver = self._noun_phrase(rng.choice(PERSONS), "dat", "definite")
            objects = [receiver, self._noun_phrase(thing, "acc", "definite" if negated else None)]
        else:
            verb = rng.choice(INTRANSITIVE)
        time = rng.choice(TIMES) if with_time and rng.random() < 0.2 else None
        place = self._place() if kind != "ditransitive" and rng.random() < 0.4 else None

        finite, final, english = self._verb(verb, subject, negated and not no_object)
        middle = [time[1]] if time else []
        middle += [phrase.de for phrase in objects]
        middle += ["nicht"] if negated and not no_object else []
        middle += [place.de] if place else []
        # English keeps the verb and its preposition together: "looks for the dog".
        words = [subject.en, english.replace("_", " "), *(phrase.en for phrase in objects)]
        words += [place.en] if place else []
        words += [time[0]] if time else []
        return _Clause(subject.de, finite, middle, final, " ".join(words))

    def _place(self) -> _Phrase:
        en, de, noun = self.rng.choice(PLACES)
        phrase = self._noun_phrase(noun, "dat", self.rng.choices(["definite", "indefinite"], [3, 1])[0])
        german = f"{de} {phrase.de}"
        for long, short in (("in dem ", "im "), ("bei dem ", "beim ")):
            german = german.replace(long, short)
        return _Phrase(f"{en} {phrase.en}", german)

    def _verb(self, verb: Verb, subject: _Phrase, negated: bool) -> tuple[str, list[str], str]:
        """German finite verb, what closes the German bracket, and the English verb."""
        mood = self.rng.choices(["present", "perfect", "modal"], [6, 2, 2])[0]
        if mood == "perfect":
            forms = {
                "haben": {"first": "habe", "third": "hat", "plural": "haben"},
                "sein": {"first": "bin", "third": "ist", "plural": "sind"},
            }
            have = "has" if subject.person == "third" else "have"
            english = f"{have} {'not ' if negated else ''}{verb.en_participle}"
            return forms[verb.auxiliary][subject.person], [verb.de_participle], english
        if mood == "modal":
            en, de, de_plural = self.rng.choice(MODALS)
            if en == "must" and negated:  # "muss nicht" would be "need not"
                de, de_plural = "darf", "dürfen"
            finite = de_plural if subject.person == "plural" else de
            english = f"{'cannot' if en == 'can' and negated else en + ' not' if negated else en} {verb.en}"
            return finite, [verb.de], english
        if negated:
            return (
                _german(verb, subject),
                [],
                f"{'does' if subject.person == 'third' else 'do'} not {verb.en}",
            )
        return _german(verb, subject), [], _english(verb, subject)


def _english(verb: Verb, subject: _Phrase) -> str:
    return verb.en_third if subject.person == "third" else verb.en


def _german(verb: Verb, subject: _Phrase) -> str:
    return {"first": verb.de_first, "third": verb.de_third, "plural": verb.de}[subject.person]
