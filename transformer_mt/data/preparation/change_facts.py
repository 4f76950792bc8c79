"""The facts about the pairs that changes of training rows need."""

from collections.abc import Sequence
from pathlib import Path

from transformer_mt.config import Config
from transformer_mt.config.guided_alignment import needs_links
from transformer_mt.data.batches.encoded_pairs import EncodedPairs
from transformer_mt.data.preparation.row_facts import kept_facts
from transformer_mt.data.preparation.training_links import TrainingLinks
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.files import digest


def change_facts(
    config: Config, pairs: EncodedPairs, sizes: Sequence[int], tokenizer: Tokenizer, fingerprint: str
) -> tuple[EncodedPairs | None, list[str]]:
    """The links of all pairs, where a change needs them, and fingerprints of what the changes depend on
    besides the pairs of this `fingerprint`. `sizes` are the pairs of each corpus.
    """
    links, facts = None, []
    if needs_links(config):
        finder = TrainingLinks(config, pairs, sizes, tokenizer)
        links, counts = kept_facts("links", finder, fingerprint, len(pairs))
        facts.append(counts)
    if config.data.terms.share and (glossary := config.data.terms.file) is not None:
        facts.append(digest(Path(glossary)))
    return links, facts
