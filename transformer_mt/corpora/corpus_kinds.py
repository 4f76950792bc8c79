"""The class of a corpus in the YAML, by its keys. Our kinds are registered in parts.py. A companion's kind is
imported only when a config names it, as its module may import any of our modules.
"""

from typing import TYPE_CHECKING, Annotated, Any, Union

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
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.corpora.held_out import AnySet
from transformer_mt.corpora.hub import HubCorpus
from transformer_mt.parts import load_part, names_of
from transformer_mt.settings.section import OF_RUN

SETS: tuple[type[AnySet], ...] = tuple(load_part("corpus", name) for name in names_of("corpus")[0])
"""Our kinds."""
TRAINING: tuple[type[Corpus], ...] = tuple(
    kind for kind in SETS if issubclass(kind, Corpus) and kind.may_train
)
"""The kinds of this package that can be training corpora."""
BROUGHT = "a companion's corpus"
"""Stands for the kinds that companions bring."""
CORPUS_TAGS = (*(kind.__name__ for kind in SETS), BROUGHT)
"""Names of the kinds, which pydantic puts into the path of a mistake."""


def kind_of(corpus: Any) -> str | None:
    """The kind of a corpus in the YAML, by the keys that only this kind has. A slice of `data.hub` has none
    of them, only other keys of HubCorpus. The key of a companion's kind is the name of the kind.
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
    """A corpus in a run's config whose kind is not installed; translation does not need it."""

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
