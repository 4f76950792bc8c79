"""The test sets that sacreBLEU knows by name (wmt14, wmt20, iwslt17, ...), downloaded by its library."""

import difflib
import logging
from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from transformer_mt.corpora.corpus import Corpus, EvaluationSentence, Languages
from transformer_mt.errors import InputError
from transformer_mt.settings.section import Conflict
from transformer_mt.text.lines import Pair, read_lines


class SacrebleuCorpus(Corpus):
    """A test set that sacreBLEU knows by name."""

    KEYS: ClassVar[tuple[str, ...]] = ("sacrebleu",)
    EXAMPLE: ClassVar[str] = "{sacrebleu: ...}"
    may_train: ClassVar[bool] = False

    sacrebleu: str = Field(min_length=1)
    """Its name: `wmt14`, `wmt20`, `iwslt17`; `sacrebleu --list` shows all. The languages choose the pair."""

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.reverse:
            yield (
                "a set of sacrebleu must have source_lang and target_lang instead of reverse: it has both "
                "directions"
            )

    def describe(self) -> str:
        return f"sacrebleu {self.sacrebleu}"

    @property
    def is_remote(self) -> bool:
        return True

    @property
    def is_public(self) -> bool:
        return True

    def stored_pairs(self, languages: Languages) -> Iterator[Pair]:
        # All references that are used for scoring: none of them may be trained on.
        most = None if self.several_references else 1
        for src, references in read_sacrebleu(self.sacrebleu, list(languages)):
            yield from ((src, reference) for reference in references[:most])

    def sentences(self, languages: Languages) -> Iterator[EvaluationSentence]:
        if self.several_references:
            return read_sacrebleu(self.sacrebleu, list(self.stored_languages(languages)))
        return super().sentences(languages)


def read_sacrebleu(name: str, languages: list[str]) -> Iterator[EvaluationSentence]:
    """(source, references) of a test set; sacreBLEU keeps it in ~/.sacrebleu or $SACREBLEU.

    InputError if there is no such set or language pair, or if it cannot be downloaded.
    """
    files = _files(name, languages)
    lines = zip(*(read_lines(file) for field, file in files.items() if field.startswith("ref")), strict=True)
    return zip(read_lines(files["src"]), lines, strict=True)


def _files(name: str, languages: list[str]) -> dict[str, str]:
    """The files of a test set by what they hold: src, ref, docid, ..."""
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
    logging.getLogger("sacrebleu").setLevel(logging.CRITICAL)  # the InputError below reports the problem
    try:
        fields = zip(DATASETS[name].fieldnames(pair), DATASETS[name].get_files(pair))
    except (Exception, SystemExit) as error:  # its library raises and exits in many ways
        raise InputError(
            f"sacrebleu: {name} {pair} cannot be downloaded ({type(error).__name__}); check the network, or "
            f"copy its files into {sacrebleu.utils.SACREBLEU_DIR}/{name}"
        ) from None
    return dict(fields)
