"""The data of a training, and how they are opened."""

import errno
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow

from transformer_mt.config import Config, DataConfig
from transformer_mt.corpora.corpus import EvaluationSentence
from transformer_mt.corpora.held_out import AnySet, held_out_file, rows_of, splits_of
from transformer_mt.data.batches.batch import Rows
from transformer_mt.data.batches.batching import Mixture, effective_weights, num_windows
from transformer_mt.data.batches.encoded_pairs import EncodedPairs
from transformer_mt.data.batches.packing import RowShape
from transformer_mt.data.changes.training_rows import training_rows
from transformer_mt.data.cleaning_rules import KEPT
from transformer_mt.data.preparation.encode_blocks import EncodedBlock, train_file
from transformer_mt.data.preparation.store import FACTS_FILE, LocalStore, Store
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import WorkError
from transformer_mt.messages import say
from transformer_mt.settings.objectives import TRANSLATION
from transformer_mt.settings.part import PartName
from transformer_mt.text.lines import Pair

_CHECKED_AT_ONCE = 2**31
"""Data of at most this many bytes are checked when opened; this takes two seconds."""

SEEN_FILE = "seen.safetensors"


@dataclass
class CorpusCounts:
    """Counts of one training corpus: pairs kept and dropped, by reason."""

    name: str
    counts: dict[str, int]
    """Rows by drop reason, `read` and `kept` included."""
    source_tokens: int = 0
    """Tokens of the kept pairs, end-of-sentence counted."""
    target_tokens: int = 0


class BlockFiles:
    """The files of the blocks, in a local store or fetched from a remote store into `folder`."""

    def __init__(self, store: Store, folder: Path, blocks: Sequence[EncodedBlock]) -> None:
        self._store, self._blocks = store, blocks
        self._is_here = isinstance(store, LocalStore)
        where = Path(store.location) if self._is_here else folder
        self._paths = [where / train_file(number) for number in range(len(blocks))]

    def open(self) -> EncodedPairs:
        """Open the pairs. A missing local file raises FileNotFoundError, and a damaged one ValueError if all
        files are small enough to be checked now. Otherwise a bad block raises WorkError when it is used.
        """
        sizes = [block.rows for block in self._blocks]
        if not self._is_here:
            return EncodedPairs(self._paths, sizes, self._fetch, self._release)
        if sum(path.stat().st_size for path in self._paths) > _CHECKED_AT_ONCE:
            return EncodedPairs(self._paths, sizes, self._check)
        for number, path in enumerate(self._paths):
            if not self._is_whole(number):
                raise ValueError(f"{path.name} is not as it was written")
        return EncodedPairs(self._paths, sizes)

    def _is_whole(self, number: int) -> bool:
        with self._paths[number].open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self._blocks[number].sha256

    def _check(self, number: int) -> None:
        """WorkError if the file is damaged or cannot be read."""
        path = self._paths[number]
        try:
            is_whole = self._is_whole(number)
        except OSError as error:
            raise WorkError(f"{path}: cannot be read: {error}") from None
        if not is_whole:
            raise WorkError(
                f"{path.name} is not as it was written; remove {self._store.location}, and prepare again"
            )

    def _fetch(self, number: int) -> None:
        path = self._paths[number]
        with suppress(FileNotFoundError):
            if self._is_whole(number):
                return
        try:
            self._store.fetch(path.name, path)
        except OSError as error:
            raise WorkError(
                f"{path}: cannot be fetched ({error}); start the training again: it resumes"
            ) from None
        self._check(number)

    def _release(self, number: int) -> None:
        self._paths[number].unlink(missing_ok=True)


@dataclass(frozen=True)
class ValidationSet:
    """A validation set."""

    name: str
    pairs: EncodedPairs
    """Pairs that fit a batch, for the loss; a source with several references is in as many."""
    sentences: list[EvaluationSentence]
    """The text, for BLEU and other metrics."""
    tag: str | None
    """Before each source."""
    languages: tuple[str, str]
    """Source and target."""
    objective: PartName = TRANSLATION


@dataclass(frozen=True)
class PreparedData:
    """The data as training needs them."""

    tokenizer: Tokenizer
    train: EncodedPairs
    valid: list[ValidationSet]
    """The validation sets, in the order of `data.valid`."""
    fingerprint: str
    """A hash of all training and validation ids: the same data gives the same."""
    corpora: list[CorpusCounts]
    """Kept and dropped pairs of each training corpus, in order."""
    weights: list[float]
    """Uses of each pair of a corpus per epoch."""
    several_sentences: float
    """Share of the training sources with more than one sentence."""
    held_out: dict[str, list[Pair]]
    """The sets held out of the training corpora, by name: valid, test."""
    location: str
    """The folder or the URL where they are."""
    blocks: list[EncodedBlock]
    """The parts of `train`, each of one corpus."""
    seen_file: Path
    """The record of the sentences of the training pairs."""
    links: EncodedPairs | None = None
    """For each training pair the source and the target positions of tokens that belong together."""

    @property
    def sizes(self) -> list[int]:
        """Kept pairs of each corpus: they follow one another in `train`."""
        return [corpus.counts.get(KEPT, 0) for corpus in self.corpora]

    @property
    def longest(self) -> int:
        """The longest side of a training pair, EOS counted."""
        return max((block.longest for block in self.blocks), default=1)

    def shape(self, batch_tokens: int, longest: int) -> RowShape:
        """The shape of packed batches of `batch_tokens`, for pairs that are never longer than `longest`."""
        src, tgt = (sum(side) for side in zip(*((of.source_tokens, of.target_tokens) for of in self.corpora)))
        return RowShape.of_totals(batch_tokens, src, tgt, longest)

    def mixture(self, config: Config) -> Mixture:
        """The rows of each epoch, in windows where they are many."""
        uses = sum(size * weight for size, weight in zip(self.sizes, self.weights))
        tokens = sum(
            w * (of.source_tokens + of.target_tokens) / 2 for w, of in zip(self.weights, self.corpora)
        )
        budget = config.train.update_tokens or int(config.train.batch_tokens)
        windows = min(len(self.blocks), num_windows(uses, tokens, config.data.window_pairs, budget))
        if windows <= 1:
            return Mixture(self.sizes, self.weights, config.seed)
        weights = [self.weights[block.corpus] for block in self.blocks]
        return Mixture([block.rows for block in self.blocks], weights, config.seed, windows)

    def some_sources(self, config: Config, epoch: int, window: int, most: int = 20_000) -> np.ndarray:
        """The tokens of at most `most` evenly spaced sources in a window of training, concatenated."""
        mixture = self.mixture(config)
        parts, used = mixture.parts(epoch, window), mixture.rows(epoch, window)
        starts = np.cumsum([0, *map(len, parts)])
        total = int(starts[-1]) if used is None else len(used)
        places = np.linspace(0, total - 1, min(most, total)).astype(np.int64)
        places = places if used is None else used[places]
        part = np.searchsorted(starts, places, "right") - 1
        firsts = np.array([one.start for one in parts], np.int64)
        return self.train.gathered(0, firsts[part] + places - starts[part]).values

    def rows(self, config: Config, mixture: Mixture) -> Rows:
        """The training pairs as the config changes them, for epochs of this mixture."""
        entries, in_windows = config.data.entries, mixture.windows > 1
        parts = list(zip(self.sizes, entries))
        if in_windows:
            parts = [(block.rows, entries[block.corpus]) for block in self.blocks]
        return training_rows(config, Rows(self.train, parts, self.links), self.tokenizer, in_windows)


def open_data(data: DataConfig, folder: Path, store: Store) -> PreparedData | None:
    """The data of a folder, whose pairs are in the store. None if they are missing, incomplete or damaged;
    damage is reported.
    """
    if not (folder / FACTS_FILE).exists():
        return None
    try:
        facts = json.loads((folder / FACTS_FILE).read_text(encoding="utf-8"))
        blocks = [EncodedBlock(**block) for block in facts["blocks"]]
        if not (seen_file := folder / SEEN_FILE).is_file():
            raise ValueError(f"no {SEEN_FILE}")
        train = BlockFiles(store, folder, blocks).open()
        names = (entry.title for entry in data.entries)  # of this config: renaming a corpus keeps the cache
        corpora = [CorpusCounts(**{**counts, "name": name}) for counts, name in zip(facts["corpora"], names)]
        sizes = [corpus.counts.get(KEPT, 0) for corpus in corpora]
        weights = effective_weights(
            [entry.weight for entry in data.entries], sizes, data.temperature, data.temperature_groups
        )
        return PreparedData(
            tokenizer=Tokenizer.load(folder),
            train=train,
            valid=[_open_validation(folder, i, corpus, data) for i, corpus in enumerate(data.valid_sets)],
            fingerprint=_with_weights(facts["fingerprint"], weights),
            corpora=corpora,
            weights=weights,
            several_sentences=facts["several_sentences"],
            held_out={
                split.name: [(src, tgt) for src, tgt in rows_of(held_out_file(folder, split.name))]
                for split in splits_of(data.valid_sets, data.test)
            },
            location=store.location,
            blocks=blocks,
            seen_file=seen_file,
        )
    except (OSError, ValueError, KeyError, TypeError, pyarrow.ArrowException) as error:
        # A truncated file raises OSError without errno. Missing permissions and disk errors are no reason to
        # delete the cache.
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
            raise WorkError(
                f"{error.filename or folder}: the cache cannot be read: {error.strerror}; check the "
                "disk and the folder's permissions, or set TRANSFORMER_MT_CACHE to another folder"
            ) from None
        say(f"the cache {folder} is damaged ({error}); it is rebuilt")
        return None


def _open_validation(folder: Path, number: int, corpus: AnySet, data: DataConfig) -> ValidationSet:
    sentences = [(src, tuple(references)) for src, *references in rows_of(folder / f"valid-{number}.jsonl")]
    pairs = EncodedPairs([folder / f"valid-{number}.arrow"])
    languages, objective = data.languages_of(corpus), data.objective_of(corpus)
    return ValidationSet(corpus.title, pairs, sentences, corpus.tag, languages, objective)


def _with_weights(fingerprint: str, weights: Sequence[float]) -> str:
    """The fingerprint of the data and the weights of the corpora, which change the order of an epoch."""
    if all(weight == 1.0 for weight in weights):
        return fingerprint
    return hashlib.sha256(json.dumps([fingerprint, *weights]).encode()).hexdigest()
