"""The base of every kind of corpus: the keys of the YAML that all share, and the methods each defines."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field

from transformer_mt.errors import InputError
from transformer_mt.files import missing, sample_digest
from transformer_mt.settings.corpus_keys import FilterConfig, Language
from transformer_mt.settings.objectives import TRANSLATION, MissingObjective, objective_class
from transformer_mt.settings.part import PartName, PartOf
from transformer_mt.settings.section import Conflict, Section, pattern
from transformer_mt.text.lines import Pair

TAG = pattern(r"^(>?[^>\s]\S*|>)$", "one word that does not begin with >>")
"""A token before a source; those that begin with `>>` are for languages."""

Languages = tuple[str, str]
"""Source and target."""

T = TypeVar("T")

EvaluationSentence = tuple[str, tuple[str, ...]]
"""A source and its references."""


class Corpus(Section):
    """A kind of corpus: what the YAML says of it, and how it is described and read. A subclass adds its own
    keys.
    """

    KEYS: ClassVar[tuple[str, ...]] = ()
    """Keys that only this kind has: they say which kind a corpus of the YAML is. A companion's kind has one,
    its name.
    """
    EXAMPLE: ClassVar[str] = ""
    """How the YAML names such a corpus, for error messages."""
    may_train: ClassVar[bool] = True
    """False for validation and test sets alone."""
    is_held_out: ClassVar[bool] = False
    """True if the set is made of the training corpora."""

    name: str | None = Field(None, min_length=1)
    """Name in tables and reports; by default the location."""
    weight: float = Field(1.0, gt=0.0, le=1000.0)
    """Uses of each training pair per epoch; 0.5 uses all pairs in two epochs."""
    tag: str | None = Field(None, pattern=TAG)
    """A special token before each source, such as <bt>; the same characters in a text never become it."""
    synthetic: bool = False
    """True if a model wrote one side of a training corpus. Its pairs are never held out for scoring, and are
    left out if either side is in a validation or test set that is a separate corpus.
    """
    license: str | None = None
    """The licence of the corpus, for reports."""
    source_lang: Language | None = None
    """Source language and default column, if not `data.source_lang`."""
    target_lang: Language | None = None
    """Target language and default column, if not `data.target_lang`."""
    reverse: bool = False
    """Swap the sides: what is stored as source is the target. The languages are named as they are stored."""
    objective: Annotated[PartName, PartOf("objective")] = TRANSLATION
    """The training objective; denoise, masked_lm and causal_lm use plain text, the side in `language`."""
    language: Language | None = None
    """The language of plain text."""
    filter: FilterConfig | None = None
    """Cleaning rules of a training corpus, instead of those of `data.filter`."""
    several_references: bool = False
    """In a validation or test set: treat pairs with the same source as one sentence with several references;
    use all references of a sacreBLEU set, not only the first.
    """

    def conflicts(self) -> Iterator[Conflict]:
        if self.is_text and self.language is None:
            yield f"a corpus with objective: {self.objective} must have the key language"
        if not self.is_text and self.language is not None:
            yield (
                f"language must be left out with objective: {self.objective}, which is not for plain text, "
                f"but is {self.language}"
            )

    @property
    def is_text(self) -> bool:
        """True if the corpus is used as plain text, not as pairs."""
        objective = objective_class(self.objective)
        return self.language is not None if objective is MissingObjective else objective.is_plain_text

    def describe(self) -> str:
        """The corpus in a few words."""
        raise NotImplementedError

    def stored_pairs(self, languages: Languages) -> Iterator[Pair]:
        """(source, target) pairs in the corpus's own order, in the languages that they are stored in.

        InputError at the first pair if a file, split or column is missing, and later at bytes that are not
        UTF-8.
        """
        raise NotImplementedError

    def parts(self) -> list["Corpus"]:
        """The corpora that make up this one, in order: one per file if it has several files."""
        return [self]

    def damaged(self, languages: Languages) -> dict[int, str]:
        """The problem of each row that holds no pair, by row number. `languages` are the config's."""
        return {}

    @property
    def is_remote(self) -> bool:
        """True if the corpus comes from the network."""
        return False

    @property
    def is_public(self) -> bool:
        """True if anyone can get the corpus by its name, so that the name reveals nothing about the user."""
        return False

    def local_files(self) -> list[Path]:
        """The local files of the corpus: it has changed if one of them has."""
        return []

    @property
    def has_vocabulary(self) -> bool:
        """True if the corpus is encoded, and brings the vocabulary."""
        return False

    @property
    def has_both_sides(self) -> bool:
        """True if plain text is read together with the other side of its pairs."""
        return True

    @property
    def has_several_references(self) -> bool:
        """True if a source may have several targets that count as one sentence."""
        return self.several_references

    @property
    def title(self) -> str:
        """The name of the corpus in tables."""
        return self.name or self.describe()

    def describe_access(self) -> str:
        """The corpus in a few words, saying so if it comes from the network."""
        return self.describe() + (", from the network or its local cache" if self.is_remote else "")

    def stored_languages(self, languages: Languages) -> Languages:
        """The languages that it is stored in: its columns. `languages` are those of the config."""
        if self.language and not self.has_both_sides:
            return self.language, self.language
        return self.source_lang or languages[0], self.target_lang or languages[1]

    def direction(self, languages: Languages) -> Languages:
        """Source and target language; plain text has its language twice. `languages` are the config's."""
        if self.language:
            return self.language, self.language
        source, target = self.stored_languages(languages)
        return (target, source) if self.reverse else (source, target)

    def directions(self, languages: Languages) -> list[Languages]:
        """The language pairs that the corpus teaches a model to translate. `languages` are the config's."""
        return [self.direction(languages)] if objective_class(self.objective).translates else []

    def read(self, languages: Languages, may_be_empty: bool = False) -> Iterator[Pair]:
        """(source, target) pairs of the corpus; for plain text, each text is both source and target.
        InputError if the corpus cannot be read, or is empty without `may_be_empty`. `languages` are the
        config's.
        """
        stored = self.stored_languages(languages)
        if self.language and self.language not in stored:
            raise InputError(
                f"{self._location()}: `language` must be {stored[0]} or {stored[1]}, the languages of its "
                f"sides, but is {self.language}"
            )
        pairs = self.stored_pairs(stored)
        first = next(pairs, None)
        if first is None:
            if may_be_empty:
                return iter(())
            raise InputError(f"{self._location()}: a corpus must have sentence pairs, but is empty")
        if not (
            isinstance(first, tuple) and len(first) == 2 and all(isinstance(side, str) for side in first)
        ):
            raise InputError(
                f"{type(self).__module__}.{type(self).__qualname__}: stored_pairs must give pairs of texts, "
                f"(source, target), but gives {str(first)[:80]}"
            )
        pairs = itertools.chain([first], pairs)
        if self.language:
            side = stored.index(self.language)
            return ((pair[side], pair[side]) for pair in pairs)
        return ((tgt, src) for src, tgt in pairs) if self.reverse else pairs

    def as_translations(self) -> "Corpus":
        """The corpus of the pairs that plain text is a side of."""
        return self.model_copy(update={"language": None, "objective": TRANSLATION})

    def _location(self) -> str:
        return self.describe()

    def sentences(self, languages: Languages) -> Iterator[EvaluationSentence]:
        """The sentences of a validation or test set, each with its references."""
        pairs = self.read(languages)
        return by_source(pairs) if self.several_references else ((src, (tgt,)) for src, tgt in pairs)

    def identity(self) -> dict[str, Any]:
        """Facts that change when the corpus does: its keys, and the size, time and a hash of each local file,
        as size and time may stay the same in a copy (rsync -t).
        """
        facts: dict[str, Any] = self.model_dump(exclude={"name", "weight", "license"})
        files = []
        for path in self.local_files():
            if not path.exists():
                raise InputError(missing(path))
            stat = path.stat()
            files.append([str(path.resolve()), stat.st_size, stat.st_mtime_ns, sample_digest(path)])
        return facts | {"files": files}


def by_source(pairs: Iterable[Pair]) -> Iterator[EvaluationSentence]:
    """Each source once, in the order of first appearance, with all its targets. Blank targets are left out if
    the source has one that is not blank.
    """
    references: dict[str, list[str]] = {}
    for src, tgt in pairs:
        references.setdefault(src, []).append(tgt)
    return ((src, not_blank(targets)) for src, targets in references.items())


def not_blank(targets: list[str]) -> tuple[str, ...]:
    """The references that are not blank; the first if all are."""
    return tuple(filter(str.strip, targets)) or tuple(targets[:1])


class ImportedCorpus(Corpus):
    """The corpora of an imported model. The import writes it into the config: do not write it yourself."""

    KEYS: ClassVar[tuple[str, ...]] = ("imported",)
    EXAMPLE: ClassVar[str] = ""  # users do not write this kind

    imported: str
    """The model's name, as given."""
    languages: list[Language] | None = None
    """Languages that it translates between, in all directions."""

    def describe(self) -> str:
        return f"the corpora of {self.imported}"

    def directions(self, languages: Languages) -> list[Languages]:
        if self.is_text:
            return []
        return [self.direction(languages), *itertools.permutations(self.languages or (), 2)]

    @property
    def is_public(self) -> bool:
        return True

    def stored_pairs(self, languages: Languages) -> Iterator[Pair]:
        raise InputError(
            f"{self.describe()} must be replaced by your own sentence pairs, as they are not stored"
        )
