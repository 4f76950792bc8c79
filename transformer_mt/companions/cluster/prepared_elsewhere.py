"""Training pairs that were prepared elsewhere: `data.train: {shards: ...}`."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from transformer_mt.config import Config, DataConfig
from transformer_mt.corpora.corpus import Corpus, Languages
from transformer_mt.corpora.held_out import held_out_file, read_set, splits_of
from transformer_mt.corpora.hub import UnknownSplitError
from transformer_mt.corpora.remote import facts_of, is_url
from transformer_mt.corpora.seen_sentences import SeenSentences, Sentences
from transformer_mt.data.preparation.encode_blocks import EncodedBlock
from transformer_mt.data.preparation.prepared_data import PreparedData, open_data
from transformer_mt.data.preparation.store import FACTS_FILE, LocalStore, Store, store_at
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import cache_root
from transformer_mt.messages import say
from transformer_mt.preparation import Build, data_key, mirror
from transformer_mt.settings.section import Conflict
from transformer_mt.text.lines import Pair


class ShardsCorpus(Corpus):
    """Prepared training pairs, with their vocabulary."""

    shards: str
    """The folder or URL that `transformer-mt prepare` printed."""

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.tag or self.filter or self.reverse or self.objective != "translation":
            yield "shards must not have tag, filter, reverse or objective: its pairs are already prepared"

    def describe(self) -> str:
        return self.shards

    @property
    def is_remote(self) -> bool:
        return is_url(self.shards)

    @property
    def has_vocabulary(self) -> bool:
        return True

    def local_files(self) -> list[Path]:
        return [] if self.is_remote else [Path(self.shards) / "facts.json"]

    def identity(self) -> dict[str, Any]:
        facts = super().identity()
        return facts | {"url": facts_of(f"{self.shards}/facts.json")} if self.is_remote else facts

    def stored_pairs(self, languages: Languages) -> Iterator[Pair]:
        raise InputError(
            f"{self.shards}: must be the only training corpus, because it has encoded pairs and no text"
        )


_DECIDED = ("filter", "leave_out", "max_length_ratio", "new_languages", "remove_duplicates")


def prepared_elsewhere(
    config: Config, tokenizer: Tokenizer | None, inherited: Sentences
) -> PreparedData | None:
    """The data of a config whose only training corpus is prepared; None for others.
    InputError where the data do not fit the config or the model's `tokenizer`.
    """
    shards = config.data.entries[0]
    if not isinstance(shards, ShardsCorpus) or len(config.data.entries) > 1:
        return None
    source = store_at(shards.shards)
    if not source.exists(FACTS_FILE):
        raise InputError(
            f"{shards.shards}: must be what `transformer-mt prepare` printed, but has no {FACTS_FILE}"
        )
    folder = cache_root() / data_key(config, None, inherited)
    if (data := open_data(config.data, folder, source)) is None:
        folder.mkdir(parents=True, exist_ok=True)
        _adopt(source, config, folder, tokenizer, inherited)
        data = open_data(config.data, folder, source)
    if data is None:
        raise WorkError(f"{shards.shards}: the prepared data are damaged; prepare them again")
    if tokenizer is not None and tokenizer.fingerprint != data.tokenizer.fingerprint:
        raise InputError(f"{shards.shards}: must have the vocabulary of the model, but has another")
    seen, languages = SeenSentences.read(data.seen_file), config.data.languages
    sets = [("validation", of.name, of.sentences) for of in data.valid]
    for of in config.data.test:
        with suppress(UnknownSplitError):  # `evaluate` will refuse
            sets.append(("test", of.describe(), list(read_set(of, languages, folder, "test"))))
    for kind, name, sentences in sets:
        if seen is not None and (known := int(seen.own.knows(sentences).sum())):
            say(
                f"warning: {known:,} of {len(sentences):,} {kind} sentences are in {shards.shards} ({name}): "
                "their scores are too high"
            )
    _refuse_without_effect(config)
    return data


def _refuse_without_effect(config: Config) -> None:
    """InputError if the config changes a key whose value was fixed when the pairs were prepared."""
    usual = DataConfig.model_fields
    changed = [f"data.{key}" for key in _DECIDED if getattr(config.data, key) != usual[key].get_default()]
    if changed:
        raise InputError(f"{', '.join(changed)} must be left out with shards: the pairs are prepared")


def _adopt(
    source: Store, config: Config, folder: Path, given: Tokenizer | None, inherited: Sentences
) -> None:
    """Use training pairs and a vocabulary that were prepared in another store; the pairs stay there."""
    data = config.data
    facts = json.loads(source.read(FACTS_FILE))
    mirror(source, folder, "valid-", FACTS_FILE)
    tokenizer = Tokenizer.load(folder)
    for piece in data.control_pieces:
        tokenizer.control_id(piece)
    for split in splits_of(data.valid_sets, data.test):
        if not source.exists(held_out_file(Path(), split.name).name):
            raise InputError(f"data.{split.name} must be a file, as {source.location} has no such set")
    if facts["languages"] != [data.source_lang, data.target_lang]:
        of_shards = " and ".join(facts["languages"])
        raise InputError(f"the languages must be {of_shards}, as in {source.location}")
    if tokenizer.shared != config.tokenizer.shared:
        raise InputError(f"tokenizer.shared must be {str(tokenizer.shared).lower()}, as in {source.location}")
    blocks = [EncodedBlock(**{**block, "corpus": 0}) for block in facts["blocks"]]
    if (longest := max(block.longest for block in blocks)) > data.max_length:
        raise InputError(
            f"data.max_length must be at least {longest}, the longest side in {source.location}, but is "
            f"{data.max_length}"
        )
    build = Build(config, LocalStore(folder), folder, given, inherited)
    fingerprints = [facts["fingerprint"]]
    for number in range(len(data.valid_sets)):
        fingerprints.append(build.encode_validation(number, None, tokenizer))
    build.write_manifest(fingerprints, blocks, facts["several_sentences"])
