"""The facts about the pairs that changes of training rows need."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from transformer_mt.config import Config
from transformer_mt.config.guided_alignment import needs_links
from transformer_mt.corpora.held_out import AnySet, FromTrainCorpus
from transformer_mt.data.batches.encoded_pairs import EncodedPairs
from transformer_mt.data.preparation.neighbours import Neighbours
from transformer_mt.data.preparation.row_facts import kept_facts
from transformer_mt.data.preparation.training_links import TrainingLinks
from transformer_mt.data.preparation.training_pairs import training_pairs
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.files import digest


def change_facts(
    config: Config, pairs: EncodedPairs, sizes: Sequence[int], tokenizer: Tokenizer, fingerprint: str
) -> tuple[EncodedPairs | None, list[str]]:
    """The facts of all pairs, where a change needs them: their links, or which text follows; and fingerprints
    of what the changes depend on besides the pairs of this `fingerprint`. `sizes` are the pairs of each
    corpus.
    """
    links, facts = None, []
    if config.data.has_next_sentences:
        starts = np.cumsum([0, *sizes]).tolist()
        corpora = zip(
            config.data.entries,
            map(range, starts, starts[1:]),
            (training_pairs(entry, config.data) for entry in config.data.entries),
        )
        neighbours = Neighbours(config, pairs, tokenizer, corpora)
        links, counts = kept_facts("neighbours", neighbours, fingerprint, len(pairs))
        facts.append(counts)
    if needs_links(config):
        finder = TrainingLinks(config, pairs, sizes, tokenizer)
        links, counts = kept_facts("links", finder, fingerprint, len(pairs))
        facts.append(counts)
    if config.data.terms.share and (glossary := config.data.terms.file) is not None:
        facts.append(digest(Path(glossary)))
    return links, facts


def neighbours_of_set(
    config: Config, pairs: EncodedPairs, corpus: AnySet, tokenizer: Tokenizer, fingerprint: str
) -> EncodedPairs | None:
    """For each text of a validation set whether the next one follows, where a change needs it."""
    is_needed = config.data.has_next_sentences and config.data.objective_of(corpus) == "masked_lm"
    if not is_needed or isinstance(corpus, FromTrainCorpus):
        return None
    texts = corpus.read(config.data.languages)
    finder = Neighbours(config, pairs, tokenizer, [(corpus, range(len(pairs)), texts)])
    facts = [fingerprint, json.dumps(corpus.identity(), sort_keys=True)]
    return kept_facts("neighbours", finder, " ".join(facts), len(pairs))[0]
