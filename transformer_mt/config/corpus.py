"""The ways in which the YAML names a corpus."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from transformer_mt.config.filter import FilterConfig
from transformer_mt.config.language import Language
from transformer_mt.config.section import Positive, Section

TAG = r"^(>?[^>\s]\S*|>)$"
"""A piece before a source; those that begin with `>>` are for languages."""

Columns = list[str] | list[int]


def _check_columns(columns: Any) -> Any:
    if columns is None:
        return columns
    kinds = {type(column) for column in columns} if isinstance(columns, list) and len(columns) == 2 else set()
    if kinds != {str} and not (kinds == {int} and min(columns) > 0):
        raise ValueError(
            "columns must be two names ([en, de]) or, for a table without header, two numbers from 1 on "
            f"([1, 2]), but is {columns!r}"
        )
    return columns


def _check_target(target: Any) -> Any:
    files = target if isinstance(target, list) else [target]
    if not files or not all(isinstance(file, str) for file in files):
        raise ValueError(
            "target must be a file, or of a test set a list of files with a reference each, but is "
            f"{target!r}"
        )
    return target


class CorpusOptions(Section):
    """What every corpus may have."""

    name: str | None = Field(None, min_length=1)
    """Its name in tables and reports; by default its location."""
    weight: float = Field(1.0, gt=0.0, le=1000.0)
    """Of a training corpus: each pair is used so many times per epoch; 0.5 uses all pairs in two epochs."""
    tag: str | None = Field(None, pattern=TAG)
    """A piece of its own before each source, such as <bt>; the same characters in a text never become it."""
    synthetic: bool = False
    """Of a training corpus: a model wrote one side. Its pairs are never held out to be scored, and are left
    out if either side is in a validation or test set that is a corpus of its own.
    """
    license: str | None = None
    """The licence of the corpus, for reports."""
    source_lang: Language | None = None
    """Its source language and default column, if it is not `data.source_lang`."""
    target_lang: Language | None = None
    """Its target language and default column, if it is not `data.target_lang`."""
    reverse: bool = False
    """Swap the sides: what is stored as source is the target. The languages are named as they are stored."""
    filter: FilterConfig | None = None
    """Of a training corpus: its cleaning rules, instead of those of `data.filter`."""
    several_references: bool = False
    """Of a validation or test set: pairs with the same source are one sentence with several references; of a
    set that sacreBLEU knows, all its references count, not only the first.
    """


class HubCorpus(CorpusOptions):
    """A set on the Hugging Face hub, or a local folder in the hub's layout."""

    hub: str
    """Name on the hub (`wmt/wmt14`) or a local folder; `data.hub` is the default."""
    config: str | None = None
    """The set's configuration (`de-en`); `data.config` is the default."""
    split: str = Field(pattern=r"^[\w.-]+(\[(-?\d+)?:(-?\d+)?\])?$")
    """A split, or a slice of one: `train`, `train[:500000]`."""
    columns: list[str] | None = Field(None, min_length=2, max_length=2)
    """Source and target column; by default the two languages, alone or inside a `translation` column."""
    revision: str | None = None
    """A commit, tag or branch of the set on the hub, so that it stays what it is; by default its newest
    state.
    """


class FilesCorpus(CorpusOptions):
    """Two line-aligned text files, plain, .gz, .bz2, .xz or .zst."""

    source: str
    """File of source sentences, one a line."""
    target: Annotated[str | list[str], BeforeValidator(_check_target)]
    """File of their translations, line by line; of a validation or test set also a list of such files, a
    reference each.
    """

    @property
    def targets(self) -> list[str]:
        """The files of translations."""
        return self.target if isinstance(self.target, list) else [self.target]


class FileCorpus(CorpusOptions):
    """One file of pairs: .tsv, .csv, .jsonl, .tmx (plain, .gz, .bz2, .xz or .zst), .parquet, or .zip in
    OPUS's Moses format.
    """

    file: str
    """The file; its ending says what it is."""
    columns: Annotated[Columns | None, BeforeValidator(_check_columns)] = None
    """Source and target column, by name, or by number from 1 on for a table without header; by default the
    two languages. Of .tmx and .zip these are language codes.
    """
    delimiter: str | None = Field(None, min_length=1, max_length=1)
    """Between the columns of .tsv and .csv; by default a tab and a comma."""


class OpusCorpus(CorpusOptions):
    """A corpus of OPUS (opus.nlpl.eu) in Moses format, downloaded once."""

    opus: str = Field(pattern=r"^[\w.+-]+$")
    """Its name there: `News-Commentary`."""
    version: str = Field(pattern=r"^[\w.+-]+$")
    """Its version: `v16`."""
    languages: list[Language] | None = Field(None, min_length=2, max_length=2)
    """Source and target in OPUS's codes, where they differ: `[en, zh_CN]`."""


class ToyCorpus(CorpusOptions):
    """The built-in English-German toy language."""

    toy: Literal["train", "valid", "test"]
    """Which of its three disjoint splits."""
    size: Positive | None = None
    """How many pairs; by default 40,000 of train, 500 of valid and of test."""


class FromTrain(Section):
    """Pairs held out of the training corpora: those whose normalised source has a small hash. Adding data
    never moves a held-out sentence into training.
    """

    share: float = Field(0.01, gt=0.0, le=0.5)
    """The share of the training sources that is held out, in every entry."""
    max: Positive = 1000
    """At most this many pairs are scored, those with the smallest hashes, of entries that have no tag and are
    not synthetic.
    """


class FromTrainCorpus(Section):
    """A set held out of the training corpora."""

    from_train: FromTrain
    """How many pairs."""

    # As every corpus: it is scored without a tag, and not trained on.
    tag: ClassVar[str | None] = None
    source_lang: ClassVar[str | None] = None
    target_lang: ClassVar[str | None] = None
    reverse: ClassVar[bool] = False
    weight: ClassVar[float] = 1.0
    several_references: ClassVar[bool] = False


class SacrebleuCorpus(CorpusOptions):
    """A test set that sacreBLEU knows by name."""

    sacrebleu: str = Field(min_length=1)
    """Its name: `wmt14`, `wmt20`, `iwslt17`; `sacrebleu --list` shows all. The languages choose the pair."""


def corpus_kind(corpus: Any) -> str | None:
    """The kind of corpus a mapping describes, by the one key that only this kind has."""
    has = (lambda key: key in corpus) if isinstance(corpus, dict) else (lambda key: hasattr(corpus, key))
    for key, kind in (
        ("toy", "toy"),
        ("opus", "opus"),
        ("file", "file"),
        ("source", "files"),
        ("target", "files"),
        ("from_train", "held"),
        ("sacrebleu", "sacrebleu"),
    ):
        if has(key):
            return kind
    return "hub" if isinstance(corpus, (dict, HubCorpus)) else None


Corpus = Annotated[
    Annotated[HubCorpus, Tag("hub")]
    | Annotated[FilesCorpus, Tag("files")]
    | Annotated[FileCorpus, Tag("file")]
    | Annotated[OpusCorpus, Tag("opus")]
    | Annotated[ToyCorpus, Tag("toy")],
    Discriminator(
        corpus_kind,
        custom_error_type="corpus_kind",
        custom_error_message="must be a corpus: {split: ...} of data.hub, {hub: ..., split: ...}, "
        "{source: ..., target: ...}, {file: ...}, {opus: ..., version: ...} or {toy: ...}",
    ),
]

Readable = HubCorpus | FilesCorpus | FileCorpus | OpusCorpus | ToyCorpus | SacrebleuCorpus
"""What has pairs of its own."""

EvaluationCorpus = Annotated[
    Annotated[HubCorpus, Tag("hub")]
    | Annotated[FilesCorpus, Tag("files")]
    | Annotated[FileCorpus, Tag("file")]
    | Annotated[OpusCorpus, Tag("opus")]
    | Annotated[ToyCorpus, Tag("toy")]
    | Annotated[SacrebleuCorpus, Tag("sacrebleu")]
    | Annotated[FromTrainCorpus, Tag("held")],
    Discriminator(
        corpus_kind,
        custom_error_type="corpus_kind",
        custom_error_message="must be a corpus: {split: ...} of data.hub, {hub: ..., split: ...}, "
        "{source: ..., target: ...}, {file: ...}, {opus: ..., version: ...}, {toy: ...}, {sacrebleu: ...}, "
        "or held out of training: "
        "{from_train: {share: 0.01}}",
    ),
]
"""A validation or test set."""

Corpora = Annotated[
    Annotated[Corpus, Tag("one")] | Annotated[list[Corpus], Tag("list")],
    Discriminator(lambda corpora: "list" if isinstance(corpora, list) else "one"),
]
"""One corpus, or several."""

EvaluationCorpora = Annotated[
    Annotated[EvaluationCorpus, Tag("one")] | Annotated[list[EvaluationCorpus], Tag("list")],
    Discriminator(lambda corpora: "list" if isinstance(corpora, list) else "one"),
]
"""One set, or several."""

CORPORA = ("data.train", "data.valid")
"""Keys whose value is replaced, not merged: the keys of two corpora together are no valid corpus."""
