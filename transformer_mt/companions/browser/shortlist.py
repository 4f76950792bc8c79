"""A shortlist for Bergamot's engine: the target tokens that are probable with each source token. The engine
then scores these alone, instead of the whole vocabulary.
"""

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from transformer_mt.companions.exchange.export.format import TrainedRun
from transformer_mt.corpora.corpus import ImportedCorpus
from transformer_mt.corpora.seen_sentences import NOTHING_SEEN
from transformer_mt.data.preparation.training_links import import_thot
from transformer_mt.data.vocabulary.tokenizer import EOS
from transformer_mt.errors import InputError, Setting
from transformer_mt.messages import say, show_progress
from transformer_mt.preparation import prepare
from transformer_mt.settings.objectives import objective_class

BEST = 50
"""Target tokens of a source token."""
COMMON = 100
"""The most frequent target tokens, which each sentence may use."""
_PAIRS = 200_000
"""At most this many training pairs, evenly spaced, teach the lexicon."""
_PASSES = 5
_MAGIC = 0xF11A48D5013417F5
_MASK = 2**64 - 1


def write_shortlist(run: TrainedRun, ids: Sequence[Sequence[int]], file: Path) -> None:
    """Learn a shortlist from the run's training pairs, as their files are now, and write it. `ids[0][i]` is
    our id of the engine's source token i, `ids[-1][i]` of its target token i. InputError if the pairs or the
    aligner are not there.
    """
    import_thot()
    entries = run.config.data.entries
    if any(isinstance(entry, ImportedCorpus) for entry in entries):
        raise InputError(
            "a shortlist is learnt from training pairs, but an imported model has none; leave out ",
            Setting("shortlist"),
        )
    seen = run.folder.seen()
    try:
        data = prepare(run.config, run.tokenizer, seen.inherited if seen else NOTHING_SEEN)
    except InputError as error:
        needed = "a shortlist is learnt from the training pairs; without them, leave out "
        raise InputError(needed, Setting("shortlist"), ": ", *error.parts) from error
    translates = [objective_class(entries[block.corpus].objective).translates for block in data.blocks]
    rows = np.flatnonzero(np.repeat(translates, [block.rows for block in data.blocks]))
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), _PAIRS)).astype(np.int64)]
    say(f"shortlist: learning a lexicon from {len(rows):,} training pairs")
    lists = probable_tokens((data.train.src(row), data.train.tgt(row)) for row in rows.tolist())
    numbers = {ours: theirs for theirs, ours in enumerate(ids[-1])}
    numbered = [
        # A list must not be empty; the end of a sentence is always possible.
        sorted({numbers[EOS], *(numbers[token] for token in lists.get(ours, ()) if token in numbers)})
        for ours in ids[0]
    ]
    file.write_bytes(packed(numbered))


def probable_tokens(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> dict[int, list[int]]:
    """For each token of the sources the `BEST` target tokens by p(target | source), learnt by IBM's model 1
    (Brown et al. 1993). For EOS, which ends every source in the engine, the `COMMON` ones of all targets.
    """
    model, sources, targets = import_thot().Ibm1AlignmentModel(), set[int](), Counter[int]()
    for src, tgt in ((src.tolist(), tgt.tolist()) for src, tgt in pairs):
        model.add_sentence_pair(list(map(str, src)), list(map(str, tgt)))
        sources.update(src)
        targets.update(tgt)
    model.start_training()
    for _ in show_progress(range(_PASSES), "lexicon", unit="passes"):
        model.train()
    model.end_training()
    lists = {EOS: [token for token, _ in targets.most_common(COMMON)]}
    for token in sources:
        translations = model.get_translations(model.get_src_word_index(str(token)))
        best = sorted(translations, key=lambda translation: -translation[1])[:BEST]
        lists[token] = [int(model.get_trg_word(int(number))) for number, _ in best]
    return lists


def packed(lists: Sequence[Sequence[int]]) -> bytes:
    """The file of Marian's BinaryShortlistGenerator: for each source token where its sorted list begins, and
    the lists.
    """
    offsets = np.cumsum([0, *map(len, lists)]).astype("<u8")
    tokens = np.concatenate(lists).astype("<u4")
    # Its own most frequent tokens are the first of the vocabulary; here they are on the list of the end.
    sizes = struct.pack("<4Q", 0, BEST, len(offsets), len(tokens))
    content = sizes + offsets.tobytes() + tokens.tobytes()
    checksum = 0
    for word in np.frombuffer(content[: len(content) // 8 * 8], "<u8").tolist():
        checksum ^= (word + 0x9E3779B9 + (checksum << 6) + (checksum >> 2)) & _MASK
    return struct.pack("<2Q", _MAGIC, checksum) + content
