"""Word alignments of all training pairs, from a file in Pharaoh format or an aligner, and the words that
token ids belong to.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, compress, groupby, islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch

from transformer_mt.config import Config
from transformer_mt.config.train_section import needs_links
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.data.batches.encoded_pairs import Chunk, Column, EncodedPairs, write_chunks
from transformer_mt.data.cleaning_rules import READ
from transformer_mt.data.preparation.prepared_data import PreparedData
from transformer_mt.data.preparation.store import LocalEngine, LocalStore, run_stage
from transformer_mt.data.vocabulary.tokenizer import PieceModel
from transformer_mt.device import free_memory
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import cache_root, digest, replacing, write_text
from transformer_mt.messages import say, show_progress
from transformer_mt.settings.corpus_keys import FilterConfig
from transformer_mt.settings.objectives import objective_class
from transformer_mt.text.languages import count_unsegmented
from transformer_mt.text.lines import Pair, read_lines

_LINK = re.compile(r"\d{1,6}-\d{1,6}")
_MARKS = re.compile(r"▁?[^\w▁]+")


class PieceWords:
    """Divides rows of token ids of one vocabulary into words. In scripts without spaces each token is a word;
    a punctuation mark such as a comma is always a word of its own.
    """

    def __init__(self, model: PieceModel) -> None:
        size = model.vocab_size()
        self._pieces = [model.id_to_piece(i) for i in range(size)]
        self._is_text = np.array([not (model.is_control(i) or model.is_unknown(i)) for i in range(size)])
        stands_alone = [
            not model.is_byte(i) and (count_unsegmented(piece) > 0 or _MARKS.fullmatch(piece) is not None)
            for i, piece in enumerate(self._pieces)
        ]
        self._stands_alone = np.array(stands_alone) | ~self._is_text
        self._opens_space = np.array([piece.startswith("▁") for piece in self._pieces])

    def word_of(self, ids: np.ndarray) -> np.ndarray:
        """(T,) the number of each token's word, counted over the text; -1 for a control token."""
        opens = self._opens_space[ids] | self._stands_alone[ids]
        opens[1:] |= self._stands_alone[ids[:-1]]
        return self._numbered(ids, opens)

    def spaced_word_of(self, ids: np.ndarray) -> np.ndarray:
        """(T,) as `word_of`, but for words divided only at white space."""
        return self._numbered(ids, self._opens_space[ids])

    def _numbered(self, ids: np.ndarray, opens: np.ndarray) -> np.ndarray:
        is_text = self._is_text[ids]
        opens &= is_text
        if is_text.any():
            opens[np.argmax(is_text)] = True
        return np.where(is_text, np.cumsum(opens) - 1, -1)

    def spelling(self, ids: np.ndarray) -> str:
        """The characters of the text without white space."""
        return "".join(self._pieces[i] for i in ids[self._is_text[ids]].tolist()).replace("▁", "")

    def words(self, ids: np.ndarray, word_of: np.ndarray) -> list[str]:
        """(W,) the words in lower case."""
        words = [""] * (int(word_of.max(initial=-1)) + 1)
        for i, word in zip(ids.tolist(), word_of.tolist()):
            if word >= 0:
                words[word] += self._pieces[i]
        return [word.removeprefix("▁").lower() or "▁" for word in words]


def read_links(file: Path) -> Iterator[np.ndarray]:
    """(links, 2) of each line. InputError names a line that has something else."""
    for number, line in enumerate(read_lines(file), start=1):
        if not all(map(_LINK.fullmatch, line.split())):
            raise InputError(
                f"{file}: each line must have links such as 0-0 1-2 (source word, target word), but line "
                f"{number} is {line.strip()[:60]!r}"
            )
        yield np.array([link.split("-") for link in line.split()], np.int64).reshape(-1, 2)


WordPair = tuple[list[str], list[str]]


def aligned(pairs: Iterable[WordPair]) -> Iterator[np.ndarray]:
    """(links, 2) for each pair, in order: source word and target word. The aligner learns from all pairs in
    both directions, which grow-diag joins (Koehn et al. 2003). The same pairs give the same links.
    """
    library = import_thot()
    models = [library.EflomalAlignmentModel() for _ in range(2)]
    count = 0
    for src, tgt in pairs:
        count += 1
        models[0].add_sentence_pair(src, tgt)
        models[1].add_sentence_pair(tgt, src)
    for model in models:
        model.emit_training_alignments = True
        model.start_training()
        for _ in show_progress(range(model.scheduled_iterations), "aligning", unit="passes"):
            model.train()
        model.end_training()
    both = library.SymmetrizedAlignmentModel(*models)
    both.heuristic = library.SymmetrizationHeuristic.GROW_DIAG
    if both.num_training_alignments != count:
        raise WorkError(
            f"thot must align each of {count:,} pairs, but aligned {both.num_training_alignments:,}; install "
            "another version of it"
        )
    for number in range(count):
        yield np.argwhere(both.get_training_alignment(number)[1].to_numpy())


def import_thot() -> Any:
    """thot's module of aligners; InputError says which extra brings it."""
    try:
        import thot.alignment
    except ImportError as error:
        raise InputError(
            f"to align words this needs thot: pip install 'transformer-mt[alignment]' ({error})"
        ) from None
    return thot.alignment


_FORMAT = 3  # raise it when a change alters what is written

ALIGNED = 1_000_000
"""The aligner learns from at most about this many pairs together; with more, links change little."""
_BYTES = 5_000
"""The bytes of memory that the aligner takes per pair (measured)."""
_ROWS = 10_000

RowLinks = tuple[np.ndarray, np.ndarray]
"""(L,) positions of source tokens, and (L,) of the target tokens that belong to them."""
_NONE: RowLinks = np.zeros(0, np.int32), np.zeros(0, np.int32)


def with_links(config: Config, data: PreparedData) -> PreparedData:
    """The data with the links that a change of their pairs needs, and with a fingerprint of them."""
    if not needs_links(config):
        return data
    links, facts = training_links(config, data)
    data = replace(data, links=links)
    fingerprint = hashlib.sha256(" ".join([data.fingerprint, *facts]).encode()).hexdigest()
    return replace(data, fingerprint=fingerprint)


def training_links(config: Config, data: PreparedData) -> tuple[EncodedPairs, list[str]]:
    """Returns (links, fingerprints), which are kept in the cache. The links of a training pair are stored as
    another pair, of source positions and target positions, both empty if the pair is not a translation.
    """
    blocks = [block.sha256 for block in data.blocks]
    facts = [blocks, _FORMAT, data.tokenizer.fingerprint, *map(digest, config.train.guided_alignment.files)]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
    stage = TrainingLinks(config, data, folder := cache_root() / f"links-{key}")
    workers = free_memory(torch.device("cpu")) // (_BYTES * max(stage.sizes))
    for _ in range(2):
        folder.mkdir(parents=True, exist_ok=True)
        run_stage(stage, LocalEngine(workers), LocalStore(folder))
        with suppress(OSError, ValueError, pyarrow.ArrowException):
            links = EncodedPairs([stage.file(number) for number in range(len(stage.sizes))])
            if len(links) == len(data.train):
                marks = (folder / stage.result(number) for number in range(len(stage.sizes)))
                return links, [mark.read_text(encoding="utf-8") for mark in marks]
        shutil.rmtree(folder, ignore_errors=True)  # damaged
    raise WorkError(f"{folder}: must read as it was written, but does not; check the disk")


class TrainingLinks:
    """The stage that finds links. A task covers the blocks that are aligned together; if any corpus has a
    file of links, it covers the blocks of one corpus.
    """

    what = "aligning"

    def __init__(self, config: Config, data: PreparedData, folder: Path) -> None:
        self._pairs, self._tokenizer, self._folder = data.train, data.tokenizer, folder
        self._data, files = config.data, iter(config.train.guided_alignment.files)
        entries = self._data.entries
        self._files = [
            next(files, None) if objective_class(of.objective).translates else None for of in entries
        ]
        self._blocks, self._starts = data.blocks, np.cumsum([0, *(of.rows for of in data.blocks)]).tolist()
        self._sides = PieceWords(self._tokenizer.src), PieceWords(self._tokenizer.tgt)
        pairs, rows = len(data.train), [block.rows for block in data.blocks]
        part_of = [
            block.corpus if any(self._files) else (start + block.rows // 2) * -(-pairs // ALIGNED) // pairs
            for start, block in zip(self._starts, data.blocks)
        ]
        self._tasks = [list(blocks) for _, blocks in groupby(range(len(rows)), part_of.__getitem__)]
        """The blocks of each."""
        self.sizes = [sum(rows[block] for block in blocks) for blocks in self._tasks]

    def result(self, number: int) -> str:
        return f"{number:05d}.fingerprint"

    def file(self, number: int) -> Path:
        """The file with the links of a task's pairs."""
        return self._folder / f"{number:05d}.arrow"

    def run(self, number: int) -> None:
        file = self._files[self._blocks[self._tasks[number][0]].corpus]
        blocks = self._tasks[number]
        rows = self._found(blocks) if file is None else self._given(blocks, file)
        with replacing(self.file(number)) as part:
            fingerprint = write_chunks(part, _chunks(rows))
        write_text(self._folder / self.result(number), fingerprint)
        self._pairs.close_all_but(())  # deletes local copies of blocks from a remote store

    def _entry(self, block: int) -> Corpus:
        return self._data.entries[self._blocks[block].corpus]

    def _rows(self, block: int) -> range:
        return range(self._starts[block], self._starts[block + 1])

    def _found(self, blocks: Sequence[int]) -> Iterator[RowLinks]:
        """The links that the aligner finds in some blocks; none for rows that are no translations."""
        has_links = [objective_class(self._entry(block).objective).translates for block in blocks]
        rows = list(chain.from_iterable(map(self._rows, compress(blocks, has_links))))
        if rows:
            say(f"aligning the words of {len(rows):,} pairs")
        words = (
            [side.words(ids, side.word_of(ids)) for side, ids in zip(self._sides, self._ids(row))]
            for row in rows
        )
        links = aligned((src, tgt) for src, tgt in words)
        for block, has in zip(blocks, has_links):
            for row in self._rows(block):
                words_of = [side.word_of(ids) for side, ids in zip(self._sides, self._ids(row))]
                yield _of_pieces(next(links), words_of) if has else _NONE

    def _given(self, blocks: Sequence[int], file: Path) -> Iterator[RowLinks]:
        """The links of some blocks, read from their corpus's file, which has one line per pair."""
        entry = self._entry(blocks[0])
        chosen, languages = self._data.filter_of(entry), self._data.languages
        lines = _together(entry.read(languages), read_links(file), file, entry)
        for block in blocks:
            is_kept = np.zeros(self._blocks[block].counts[READ], bool)
            is_kept[self._pairs.rows_read(block)] = True
            of_block = list(islice(lines, len(is_kept)))
            if len(of_block) < len(is_kept):
                raise InputError(f"{entry.title}: has changed since its preparation")
            for row, (links, texts) in zip(self._rows(block), compress(of_block, is_kept)):
                links = links[:, ::-1] if entry.reverse else links
                words_of = [self._word_of(*side) for side in zip((0, 1), self._ids(row), texts)]
                counts = [len(text.split()) for text in texts]
                if (links >= counts).any() or any(of is None for of in words_of):
                    raise InputError(_refusal(file, texts, chosen))
                yield _of_pieces(links, [of for of in words_of if of is not None])
        next(lines, None)  # raises InputError if lines are left over

    def _word_of(self, side: int, ids: np.ndarray, text: str) -> np.ndarray | None:
        """(T,) for each token the number of its word in the text of the file, split at white space.
        None if a filter has changed the words.
        """
        pieces, words = self._sides[side], text.split()
        word_of = pieces.spaced_word_of(ids)
        if word_of.max(initial=-1) + 1 == len(words):
            return word_of
        # A filter may join words; normalisation may split them, or remove a word of invisible characters.
        encode = self._tokenizer.encode_tgt if side else self._tokenizer.encode_src
        spelt = [pieces.spelling(np.array(alone, np.int32)) for alone in encode(words)]
        lengths = [len(pieces.spelling(ids[i : i + 1])) for i in range(len(ids))]
        if "".join(spelt) != pieces.spelling(ids):
            return None
        starts = np.cumsum(lengths) - lengths
        of_start = np.searchsorted(np.cumsum([len(word) for word in spelt]), starts, "right")
        return np.where(word_of >= 0, of_start, -1)

    def _ids(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        return self._pairs.src(row), self._pairs.tgt(row)


def _chunks(rows: Iterator[RowLinks]) -> Iterator[Chunk]:
    while chunk := list(islice(rows, _ROWS)):
        yield Column.of([src for src, _ in chunk]), Column.of([tgt for _, tgt in chunk])


def _together(
    texts: Iterable[Pair], lines: Iterable[np.ndarray], file: Path, entry: Corpus
) -> Iterator[tuple[np.ndarray, Pair]]:
    """The links and the texts of each pair. InputError if there are more of one than of the other."""
    for pair, links in zip_longest(texts, lines):
        if pair is None or links is None:
            raise InputError(
                f"{file}: must have a line for each pair of {entry.title}, but one of them ends first"
            )
        yield links, pair


def _refusal(file: Path, texts: Pair, chosen: FilterConfig) -> str:
    keys = {"encoding: repair": chosen.encoding == "repair", "detokenize": bool(chosen.detokenize)}
    changing = " and ".join(key for key, is_on in keys.items() if is_on)
    return f"{file}: the links do not match the words of the pair with target {texts[1][:60]!r}" + (
        f"; the corpus's filter changes words ({changing}): leave that out, or align the changed text"
        if changing
        else ""
    )


def _of_pieces(links: np.ndarray, words_of: Sequence[np.ndarray]) -> RowLinks:
    """Convert links between words to links between all of their tokens."""
    src, tgt = words_of
    of_pairs = [
        (s, t) for i, j in links.tolist() for t in np.flatnonzero(tgt == j) for s in np.flatnonzero(src == i)
    ]
    both = np.array(of_pairs, np.int32).reshape(-1, 2)
    return both[:, 0], both[:, 1]
