"""The kinds of corpora: a new one is a file like its neighbours and a line here."""

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Discriminator, Tag

from transformer_mt.companion import brought, load
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.corpora.file import FileCorpus
from transformer_mt.corpora.held_out import AnySet, FromTrainCorpus
from transformer_mt.corpora.hub import HubCorpus
from transformer_mt.corpora.imported import ImportedCorpus
from transformer_mt.corpora.line_files import FilesCorpus
from transformer_mt.corpora.opus import OpusCorpus
from transformer_mt.corpora.sacrebleu_sets import SacrebleuCorpus
from transformer_mt.corpora.text import TextCorpus
from transformer_mt.corpora.toy import ToyCorpus

TRAINING: tuple[type[Corpus], ...] = (
    HubCorpus,
    FilesCorpus,
    FileCorpus,
    OpusCorpus,
    ToyCorpus,
    TextCorpus,
    *(load("corpus", name) for name in brought("corpus")),
    ImportedCorpus,
)
"""Kinds of training, validation and test sets."""
SETS: tuple[type[AnySet], ...] = (*TRAINING, SacrebleuCorpus, FromTrainCorpus)
"""Kinds of validation and test sets."""


def kind_of(corpus: Any) -> str | None:
    """The kind of a corpus of the YAML: the class whose own keys it has; a slice of `data.hub` has none."""
    if isinstance(corpus, SETS):
        return type(corpus).__name__
    if not isinstance(corpus, dict):
        return None
    kinds = [kind.__name__ for kind in reversed(SETS) if corpus.keys() & set(kind.KEYS)]
    is_slice = corpus.keys() & (HubCorpus.model_fields.keys() - Corpus.model_fields.keys())
    return next(iter(kinds), HubCorpus.__name__ if is_slice else None)


def _one_of(kinds: tuple[type[AnySet], ...]) -> Any:
    *examples, last = filter(None, (kind.EXAMPLE for kind in kinds))
    return Annotated[
        Union[tuple(Annotated[kind, Tag(kind.__name__)] for kind in kinds)],  # noqa: UP007
        Discriminator(
            kind_of,
            custom_error_type="corpus_kind",
            custom_error_message=f"must be a corpus: {', '.join(examples)} or {last}",
        ),
    ]


if TYPE_CHECKING:
    TrainingCorpus = Corpus
    EvaluationCorpus = AnySet
else:
    TrainingCorpus = _one_of(TRAINING)
    EvaluationCorpus = _one_of(SETS)
