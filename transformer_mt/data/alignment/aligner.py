"""Word alignment by thot's implementation of eflomal (Östling and Tiedemann 2016), from the extra
`alignment`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from transformer_mt.errors import InputError, WorkError
from transformer_mt.progress_bar import show_progress

WordPair = tuple[list[str], list[str]]


def aligned(pairs: Iterable[WordPair]) -> Iterator[np.ndarray]:
    """(links, 2) source word and target word of each pair, in order, after learning from all of them: both
    directions joined by grow-diag (Koehn et al. 2003). The same pairs give the same links.
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
