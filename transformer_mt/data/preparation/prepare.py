"""The data of a config: from the cache, or made.

The name of a cache folder is a hash of its inputs; what stands in it is complete when its manifest does.
"""

import gc
import hashlib
import json
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pyarrow

from transformer_mt.companion import hooks
from transformer_mt.config import Config, DataConfig
from transformer_mt.corpora.held_out import splits_of
from transformer_mt.corpora.seen_sentences import NOTHING_SEEN, Sentences
from transformer_mt.data.preparation.all_stages import Build, clean_up, corpus_table, is_clean, mirror
from transformer_mt.data.preparation.prepared_data import PreparedData, open_data
from transformer_mt.data.preparation.store import FACTS_FILE, LocalStore, Store, store_at
from transformer_mt.data.preparation.training_links import with_links
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import cache_root, wait_for_folder
from transformer_mt.messages import messages_to, say

_WEEK = 7 * 86_400  # seconds
FORMAT = 13  # cache format: raise it when a change in this package alters the files


def prepare(
    config: Config, tokenizer: Tokenizer | None = None, inherited: Sentences = NOTHING_SEEN
) -> PreparedData:
    """The data of `config`, from the cache if it is there. `tokenizer` is the vocabulary, where it is not to
    be learnt. Training pairs with a source that an `inherited` model was scored by are dropped, as those of
    the validation and test sets are; what it was trained on is not held out.
    """
    return with_links(config, _prepared(config, tokenizer, inherited))


def _prepared(config: Config, tokenizer: Tokenizer | None, inherited: Sentences) -> PreparedData:
    """Open or build the data, without word alignments."""
    for prepared_elsewhere in hooks("prepared_data"):
        if (data := prepared_elsewhere(config, tokenizer, inherited)) is not None:
            return _announce(data, f"from {data.location}")
    folder, store = _place(config, data_key(config, None, inherited))
    if (data := _opened(config, folder, store)) and (
        tokenizer is None or data.tokenizer.fingerprint == tokenizer.fingerprint
    ):
        return _announce(data, f"from the cache {folder}")
    if tokenizer is not None:
        folder, store = _place(config, data_key(config, tokenizer, inherited))
        if data := _opened(config, folder, store):
            return _announce(data, f"from the cache {folder}")
    return _announce(_build(config, folder, store, tokenizer, inherited), f"cached in {folder}")


def _place(config: Config, key: str) -> tuple[Path, Store]:
    """The local folder for prepared data, and their store, which is that folder or a remote one."""
    chosen = config.data.preparation.folder
    store = store_at(f"{(chosen or str(cache_root())).rstrip('/')}/{key}")
    return Path(store.location) if isinstance(store, LocalStore) else cache_root() / key, store


def _opened(config: Config, folder: Path, store: Store) -> PreparedData | None:
    """Open the data, after copying them from the store if needed. None if they are missing or damaged."""
    if not (folder / FACTS_FILE).exists() and store.exists(FACTS_FILE):
        folder.mkdir(parents=True, exist_ok=True)
        mirror(store, folder)
    data = open_data(config.data, folder, store)
    if data is not None and not is_clean(store):
        clean_up(store, folder)
    return data


def data_key(config: Config, tokenizer: Tokenizer | None, inherited: Sentences) -> str:
    """A hash of all that prepared data depend on."""
    data = config.data
    facts = {
        "format": FORMAT,
        "languages": [data.source_lang, data.target_lang],
        "train": [entry.identity() for entry in data.entries],
        "valid": [corpus.identity() for corpus in data.valid_sets],
        "test": [corpus.identity() for corpus in data.test],
        "cleaning": [data.max_length, data.max_length_ratio, data.remove_duplicates],
        "left out targets": data.leaves_out_targets,
        "filters": [data.filter_of(entry).model_dump() for entry in data.entries],
        "tokenizer": tokenizer.fingerprint
        if tokenizer
        else config.tokenizer.model_dump(exclude={"bpe_dropout", "file"}),
        "left out": inherited.scored.exact.tolist(),
        "known": inherited.fingerprint if splits_of(data.valid_sets, data.test) else "",
        "pieces": [data.pieces_before(corpus) for corpus in (*data.entries, *data.valid_sets)],
        "language pieces": data.language_pieces,
        "labels": data.all_labels,
        "pieces inside": data.pieces_inside,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def _announce(data: PreparedData, origin: str) -> PreparedData:
    say(f"training pairs ({origin}):\n{corpus_table(data.corpora, data.weights)}")
    return data


def _build(
    config: Config, folder: Path, store: Store, tokenizer: Tokenizer | None, inherited: Sentences
) -> PreparedData:
    """Build the data, or resume a preparation that was interrupted."""
    build = Build(config, store, folder, tokenizer, inherited)

    def discard() -> None:
        clean_up(store, folder)
        shutil.rmtree(folder, ignore_errors=True)

    def check() -> None:
        if data_key(config, tokenizer, inherited) != folder.name:
            discard()
            raise InputError("the corpus must not change while it is read, but has changed; start again")

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned()
        _remove_damaged(config.data, folder, store)
        folder.mkdir(exist_ok=True)
        gc.freeze()  # garbage collection of imported modules would take a tenth of the time
        try:
            build.run(check)
        except InputError:
            if not any(name.endswith(".json") for name in store.sizes("text")):
                discard()  # else keep the text that was read: the unreadable file may come back
            raise
        except FileNotFoundError:
            if not store.exists(FACTS_FILE):  # else another preparation has completed it meanwhile
                raise
        finally:
            gc.unfreeze()
        if data := _opened(config, folder, store):
            clean_up(store, folder)  # this process may have written files after another one cleaned up
            return data
        raise WorkError(f"{folder}: must read as it was written, but does not; check the disk")
    except (OSError, pyarrow.ArrowException) as error:
        where, file = store.location.rpartition("/")[0], getattr(error, "filename", None)
        if file is not None and not Path(str(file)).is_relative_to(folder.parent):
            raise  # a file elsewhere, such as a corpus, which the error names
        raise WorkError(
            f"{where}: could not write the encoded data: {error}; free some space, or set "
            "TRANSFORMER_MT_CACHE or data.preparation.folder to a folder that has it, and start again: it "
            "resumes from here"
        ) from None


def _remove_damaged(data: DataConfig, folder: Path, store: Store) -> None:
    """Remove complete but damaged data. Checks under the lock: another process may have rebuilt them."""
    if not (folder / FACTS_FILE).exists():
        return
    with wait_for_folder(folder.parent), messages_to(lambda text: None):  # damage was reported already
        if (folder / FACTS_FILE).exists() and open_data(data, folder, store) is None:
            shutil.rmtree(folder)


def _remove_abandoned() -> None:
    """Remove unfinished preparations from the cache that are more than a week old."""
    for folder in cache_root().glob("*"):
        with suppress(OSError):
            if not re.fullmatch("[0-9a-f]{24}", folder.name) or (folder / FACTS_FILE).exists():
                continue
            if max(path.stat().st_mtime for path in (folder, *folder.iterdir())) < time.time() - _WEEK:
                shutil.rmtree(folder)
