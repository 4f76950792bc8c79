"""The four ways in which the YAML names a corpus."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from transformer_mt.config.section import Positive, Section

Columns = list[str] | list[int]


def _check_columns(columns: Any) -> Any:
    if columns is None:
        return columns
    kinds = {type(column) for column in columns} if isinstance(columns, list) else set()
    are_names, are_numbers = kinds == {str}, kinds == {int} and min(columns) > 0
    if len(columns) != 2 or not (are_names or are_numbers):
        raise ValueError(
            "columns must be two names ([en, de]) or, for a table without header, two numbers from 1 on "
            f"([1, 2]), but is {columns!r}"
        )
    return columns


class HubCorpus(Section):
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


class FilesCorpus(Section):
    """Two line-aligned text files, plain or .gz."""

    source: str
    """File of source sentences, one a line."""
    target: str
    """File of their translations, line by line."""


class FileCorpus(Section):
    """One file of pairs: .tsv, .csv, .jsonl (plain or .gz), or .parquet."""

    file: str
    """The file; its ending says what it is."""
    columns: Annotated[Columns | None, BeforeValidator(_check_columns)] = None
    """Source and target column, by name, or by number from 1 on for a table without header; by default the
    two languages.
    """


class ToyCorpus(Section):
    """The built-in English-German toy language."""

    toy: Literal["train", "valid", "test"]
    """Which of its three disjoint splits."""
    size: Positive | None = None
    """How many pairs; by default 40,000 of train, 500 of valid and of test."""


def corpus_kind(corpus: Any) -> str | None:
    """The kind of corpus a mapping describes, by the one key that only this kind has."""
    has = (lambda key: key in corpus) if isinstance(corpus, dict) else (lambda key: hasattr(corpus, key))
    for key, kind in (("toy", "toy"), ("file", "file"), ("source", "files"), ("target", "files")):
        if has(key):
            return kind
    return "hub" if isinstance(corpus, (dict, HubCorpus)) else None


Corpus = Annotated[
    Annotated[HubCorpus, Tag("hub")]
    | Annotated[FilesCorpus, Tag("files")]
    | Annotated[FileCorpus, Tag("file")]
    | Annotated[ToyCorpus, Tag("toy")],
    Discriminator(
        corpus_kind,
        custom_error_type="corpus_kind",
        custom_error_message="must be a corpus: {split: ...} of data.hub, {hub: ..., split: ...}, "
        "{source: ..., target: ...}, {file: ...} or {toy: ...}",
    ),
]

CORPORA = ("data.train", "data.valid")
"""Keys whose value is replaced, not merged: the keys of two corpora together are no valid corpus."""
