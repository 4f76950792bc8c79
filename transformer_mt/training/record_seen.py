"""The sentences that a run was trained on and is scored by: those of the models it is made of before the data
are prepared, its own after it.
"""

from collections.abc import Iterator
from pathlib import Path

from transformer_mt.config import Config
from transformer_mt.corpora.corpus import EvaluationSentence
from transformer_mt.corpora.evaluation_sets import read_set
from transformer_mt.corpora.seen_sentences import NOTHING_SEEN, SeenSentences, Sentences, keys_of
from transformer_mt.data.preparation.prepared_data import PreparedData
from transformer_mt.errors import InputError
from transformer_mt.messages import messages_to, say
from transformer_mt.runs.folder import RunFolder, makers_of


def seen_before(
    config: Config, folder: RunFolder, parent: RunFolder | None, is_resumed: bool
) -> SeenSentences:
    """The record of the run as it begins: what the models have seen that it continues, or that wrote a side
    of its training pairs.
    """
    if is_resumed:
        return folder.seen() or SeenSentences(NOTHING_SEEN, is_complete=False)
    ancestors = [] if parent is None else [parent]
    for entry in config.data.entries:
        for file in entry.local_files():
            ancestors += makers_of(Path(file))
    records = [ancestor.seen() for ancestor in ancestors]
    for ancestor, record in zip(ancestors, records):
        if record is None or not record.is_complete:
            say(
                f"note: {ancestor} has no full record of its training and test data: none of it is left out "
                "of this training, and scores of sentences that it knows are not marked"
            )
    return SeenSentences.inherited_from(records)


def record_seen(config: Config, data: PreparedData, folder: RunFolder, before: SeenSentences) -> None:
    """Write the run's record; a note names the sets of which the run knows sentences from `before`."""
    texts: list[str] = []
    for name, sentences in _sets(config, data, folder):
        texts += (text for src, references in sentences for text in (src, *references))
        if known := int(before.inherited.knows(sentences).sum()):
            say(
                f"note: {known:,} of the {len(sentences):,} sentences of {name} were in the training of a "
                "model this run builds on: their scores are too high"
            )
    trained = SeenSentences.read(data.seen_file)
    validated = keys_of(src for valid in data.valid for src, _ in valid.sentences)
    of_run = Sentences(scored=keys_of(texts), validated=validated) | before.own
    of_run |= trained.own if trained else NOTHING_SEEN
    is_complete = before.is_complete and trained is not None
    SeenSentences(of_run, before.inherited, is_complete).write(folder.seen_file)


def _sets(
    config: Config, data: PreparedData, folder: RunFolder
) -> Iterator[tuple[str, list[EvaluationSentence]]]:
    for valid in data.valid:
        yield valid.name, valid.sentences
    for corpus in config.data.test:
        try:
            with messages_to(lambda text: None):  # `prepare` has reported what is wrong with a set
                sentences = list(read_set(corpus, config.data.languages, folder.path, "test"))
            yield corpus.title, sentences
        except InputError as error:  # the data come from the cache, and a test set is out of reach now
            say(f"warning: a run that continues this one may train on its test sentences: {error}")
