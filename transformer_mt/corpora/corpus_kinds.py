"""The kinds of corpora: a new one is a file like its neighbours and a line here. A companion's is imported
when a config names it: its module may import any other of ours.
"""

from collections.abc import Iterator
from itertools import permutations
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Union

from pydantic import (
    ConfigDict,
    Discriminator,
    SerializeAsAny,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from transformer_mt.companion import checked_class
from transformer_mt.corpora.corpus import Corpus, Languages
from transformer_mt.corpora.file import FileCorpus
from transformer_mt.corpora.held_out import AnySet, FromTrainCorpus
from transformer_mt.corpora.hub import HubCorpus
from transformer_mt.corpora.line_files import FilesCorpus
from transformer_mt.corpora.opus import OpusCorpus
from transformer_mt.corpora.sacrebleu_sets import SacrebleuCorpus
from transformer_mt.corpora.text import TextCorpus
from transformer_mt.corpora.toy import ToyCorpus
from transformer_mt.errors import InputError
from transformer_mt.parts import load_part, names_of
from transformer_mt.settings.corpus_keys import Language
from transformer_mt.settings.section import OF_RUN
from transformer_mt.text.lines import Pair


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
        return [self.direction(languages), *permutations(self.languages or (), 2)]

    @property
    def is_public(self) -> bool:
        return True

    def stored_pairs(self, languages: Languages) -> Iterator[Pair]:
        raise InputError(
            f"{self.describe()} must be replaced by your own sentence pairs, as they are not stored"
        )


TRAINING: tuple[type[Corpus], ...] = (
    HubCorpus,
    FilesCorpus,
    FileCorpus,
    OpusCorpus,
    ToyCorpus,
    TextCorpus,
    ImportedCorpus,
)
"""Kinds of training, validation and test sets."""
SETS: tuple[type[AnySet], ...] = (*TRAINING, SacrebleuCorpus, FromTrainCorpus)
"""Kinds of validation and test sets."""
BROUGHT = "a companion's corpus"
"""Stands for the kinds that companions bring."""
CORPUS_TAGS = (*(kind.__name__ for kind in SETS), BROUGHT)
"""Names of the kinds, which pydantic puts into the path of a mistake."""


def kind_of(corpus: Any) -> str | None:
    """The kind of a corpus of the YAML: the class whose own keys it has; a slice of `data.hub` has none. The
    key of a companion's is the name of the kind.
    """
    if isinstance(corpus, Corpus):
        return type(corpus).__name__ if isinstance(corpus, SETS) else BROUGHT
    if isinstance(corpus, SETS):
        return type(corpus).__name__
    if not isinstance(corpus, dict):
        return None
    kinds = [kind.__name__ for kind in reversed(SETS) if corpus.keys() & set(kind.KEYS)]
    kinds += [BROUGHT] if corpus.keys() & set(_others()) else []
    if kinds:
        return kinds[0]
    own = corpus.keys() - Corpus.model_fields.keys()
    return HubCorpus.__name__ if own & HubCorpus.model_fields.keys() else BROUGHT if own else None


def keys_of_kinds() -> list[str]:
    """The keys that say which kind a corpus is."""
    return [*(key for kind in SETS for key in kind.KEYS), *_others()]


def _others() -> list[str]:
    """The names of kinds that companions and programs bring."""
    _, others = names_of("corpus")
    return others


class MissingCorpus(Corpus):
    """A corpus of a run, of a kind that is not here: to translate, it need not be."""

    model_config = ConfigDict(extra="allow")

    def describe(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in (self.model_extra or {}).items())


def _brought(corpus: Any, info: ValidationInfo, must: str) -> Corpus:
    """A corpus of a companion's or a program's kind, from its keys."""
    if isinstance(corpus, Corpus):
        return corpus
    name = next((name for name in _others() if name in corpus), None)
    if name is None and info.context is not OF_RUN:
        raise PydanticCustomError("corpus_kind", "{must}", {"must": must})
    kind: type[Corpus] = MissingCorpus
    if name is not None:
        kind = checked_class(load_part("corpus", name), Corpus, f"the corpus {name}")
    return kind.model_validate(corpus)


def _one_of(kinds: tuple[type[AnySet], ...]) -> Any:
    examples = [kind.EXAMPLE for kind in kinds if kind.EXAMPLE]
    examples[len(TRAINING) - 1 : len(TRAINING) - 1] = [f"{{{name}: ...}}" for name in _others()]
    *examples, last = examples
    must = f"must be a corpus: {', '.join(examples)} or {last}"
    schema = (
        {"enum": []}
        if not _others()
        else {"anyOf": [{"type": "object", "required": [name]} for name in _others()]}
    )
    validator = WrapValidator(lambda corpus, _, info: _brought(corpus, info, must))
    of_others = Annotated[SerializeAsAny[Corpus], validator, WithJsonSchema(schema), Tag(BROUGHT)]
    return Annotated[
        Union[(*(Annotated[kind, Tag(kind.__name__)] for kind in kinds), of_others)],
        Discriminator(kind_of, custom_error_type="corpus_kind", custom_error_message=must),
    ]


if TYPE_CHECKING:
    TrainingCorpus = Corpus
    EvaluationCorpus = AnySet
else:
    TrainingCorpus = _one_of(TRAINING)
    EvaluationCorpus = _one_of(SETS)
