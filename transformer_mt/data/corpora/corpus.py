"""Sentence pairs from the hub, from files, or from the built-in toy language."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from transformer_mt.config import DataConfig
from transformer_mt.config.corpus import (
    FileCorpus,
    FilesCorpus,
    HubCorpus,
    OpusCorpus,
    Readable,
    SacrebleuCorpus,
    ToyCorpus,
)
from transformer_mt.data.corpora import toy
from transformer_mt.data.corpora.hub import UnknownSplitError, read_hub
from transformer_mt.data.corpora.moses import read_moses_zip
from transformer_mt.data.corpora.opus import read_opus
from transformer_mt.data.corpora.sacrebleu_sets import read_sacrebleu
from transformer_mt.data.corpora.tables import read_rows
from transformer_mt.data.corpora.tmx import read_tmx
from transformer_mt.errors import InputError
from transformer_mt.text.compressed import COMPRESSED, without_compression
from transformer_mt.text.lines import read_lines
from transformer_mt.text.pair import Pair

__all__ = [
    "Pair",
    "UnknownSplitError",
    "describe",
    "described_access",
    "identity",
    "is_remote",
    "name_of",
    "read_corpus",
]


def read_corpus(corpus: Readable, data: DataConfig) -> Iterator[Pair]:
    """(source, target) pairs of the corpus in its own order; InputError says what is wrong with it.

    A missing file, split or column raises at the first pair; bytes that are not UTF-8 raise when read.
    """
    pairs = _read(corpus, list(data.stored_languages_of(corpus)))
    return ((tgt, src) for src, tgt in pairs) if corpus.reverse else pairs


def _read(corpus: Readable, languages: list[str]) -> Iterator[Pair]:
    """The pairs as they are stored."""
    if isinstance(corpus, ToyCorpus):
        if {language.lower() for language in languages} != {"en", "de"}:
            raise InputError(
                f"the toy language has en and de, but data asks for {languages[0]} and {languages[1]}"
            )
        pairs = toy.generate(corpus.toy, corpus.size)
        return pairs if languages[0].lower() == "en" else ((de, en) for en, de in pairs)
    if isinstance(corpus, FilesCorpus):
        rows = read_aligned([corpus.source, *corpus.targets])
        pairs = ((src, tgt) for src, *targets in rows for tgt in targets)
        return _not_empty(pairs, f"{corpus.source} and {' and '.join(corpus.targets)}")
    if isinstance(corpus, FileCorpus):
        return _not_empty(_read_file(corpus, languages), corpus.file)
    if isinstance(corpus, OpusCorpus):
        return _not_empty(read_opus(corpus, languages), describe(corpus))
    if isinstance(corpus, SacrebleuCorpus):
        sentences = read_sacrebleu(corpus.sacrebleu, languages)
        return _not_empty(((src, references[0]) for src, references in sentences), describe(corpus))
    return _not_empty(read_hub(corpus, languages), describe(corpus))


def describe(corpus: Readable) -> str:
    """The corpus in a few words."""
    if isinstance(corpus, ToyCorpus):
        return f"toy {corpus.toy}"
    if isinstance(corpus, FilesCorpus):
        return " + ".join([corpus.source, *corpus.targets])
    if isinstance(corpus, FileCorpus):
        return corpus.file
    if isinstance(corpus, OpusCorpus):
        return f"opus {corpus.opus} {corpus.version}"
    if isinstance(corpus, SacrebleuCorpus):
        return f"sacrebleu {corpus.sacrebleu}"
    return " ".join(filter(None, [corpus.hub, corpus.config, corpus.split]))


def name_of(corpus: Readable) -> str:
    """The name of the corpus in tables."""
    return corpus.name or describe(corpus)


def described_access(corpus: Readable) -> str:
    """The corpus in a few words, and that it comes from the network if it does."""
    return describe(corpus) + (", from the network or its local cache" if is_remote(corpus) else "")


def is_remote(corpus: Readable) -> bool:
    """Whether the corpus comes from the network."""
    is_of_hub = isinstance(corpus, HubCorpus) and not Path(corpus.hub).is_dir()
    return is_of_hub or isinstance(corpus, OpusCorpus | SacrebleuCorpus)


def identity(corpus: Readable) -> dict[str, Any]:
    """Facts that change when the corpus does: its description, and size and time of each local file."""
    facts: dict[str, Any] = corpus.model_dump(exclude={"name", "weight", "license"})
    if not corpus.synthetic:  # caches made before the key existed stay valid
        del facts["synthetic"]
    if isinstance(corpus, ToyCorpus):
        return facts | {"toy_version": toy.VERSION}
    if isinstance(corpus, FilesCorpus):
        paths = [Path(file) for file in (corpus.source, *corpus.targets)]
    elif isinstance(corpus, FileCorpus):
        paths = [Path(corpus.file)]
    elif isinstance(corpus, SacrebleuCorpus | OpusCorpus):
        paths = []  # what has a name and a version stays what it is
    else:
        folder = Path(corpus.hub)
        paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    files = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file; paths are taken from the folder you start in")
        stat = path.stat()
        files.append([str(path.resolve()), stat.st_size, stat.st_mtime_ns])
    return facts | {"files": files}


def _not_empty(pairs: Iterator[Pair], what: str) -> Iterator[Pair]:
    first = next(pairs, None)
    if first is None:
        raise InputError(f"{what}: a corpus must have sentence pairs, but is empty")
    return itertools.chain([first], pairs)


def read_aligned(files: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The same line of all files; InputError with their numbers of lines if these differ."""
    readers = [read_lines(file) for file in files]
    for count, lines in enumerate(itertools.zip_longest(*readers)):
        if None in lines:
            counts = [
                count if line is None else count + 1 + sum(1 for _ in reader)
                for line, reader in zip(lines, readers)
            ]
            has = " and ".join(f"{file} has {number:,}" for file, number in zip(files, counts))
            raise InputError(f"the files must have the same number of lines, but {has}")
        yield lines


def _read_file(corpus: FileCorpus, languages: list[str]) -> Iterator[Pair]:
    suffix = Path(without_compression(corpus.file)).suffix.lower()
    columns = corpus.columns or languages
    if suffix in (".tsv", ".csv", ".jsonl", ".json", ".parquet"):
        return read_rows(corpus, columns, suffix)
    names = [str(column) for column in columns]
    if suffix == ".tmx":
        return read_tmx(corpus.file, names)
    if suffix == ".zip":
        return read_moses_zip(corpus.file, names)
    raise InputError(
        f"{corpus.file}: a corpus file must end in .tsv, .csv, .jsonl or .tmx ({', '.join(COMPRESSED)} may "
        "follow), .parquet or .zip (Moses format)"
    )
