"""The test sets that sacreBLEU knows by name (wmt14, wmt20, iwslt17, ...), downloaded by its library."""

import difflib
import logging
from collections.abc import Iterator

from transformer_mt.errors import InputError
from transformer_mt.text.lines import read_lines


def read_sacrebleu(name: str, languages: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(source, references) of a test set; sacreBLEU keeps it in ~/.sacrebleu or $SACREBLEU.

    InputError if there is no such set or language pair, or if it cannot be downloaded.
    """
    import sacrebleu.utils
    from sacrebleu.dataset import DATASETS

    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f"; did you mean {near[0]}?" if near else "; its documentation lists them"
        raise InputError(f"sacrebleu: no test set {name}{hint}")
    pair = "-".join(languages)
    pairs = sacrebleu.utils.get_langpairs_for_testset(name)
    if pair not in pairs:
        raise InputError(
            f"sacrebleu: {name} has no {pair}; its language pairs are {', '.join(sorted(pairs))}"
        )
    logging.getLogger("sacrebleu").setLevel(logging.CRITICAL)  # the sentence below says what went wrong
    try:
        source = sacrebleu.utils.get_source_file(name, pair)
        references = sacrebleu.utils.get_reference_files(name, pair)
    except (Exception, SystemExit) as error:  # its library raises and exits in many ways
        raise InputError(
            f"sacrebleu: {name} {pair} cannot be downloaded ({type(error).__name__}); check the network, or "
            f"copy its files into {sacrebleu.utils.SACREBLEU_DIR}/{name}"
        ) from None
    lines = zip(*map(read_lines, references), strict=True)
    return zip(read_lines(source), lines, strict=True)
