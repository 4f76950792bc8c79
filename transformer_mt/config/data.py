"""The YAML's `data` section: which sentence pairs."""

from typing import Any, Literal

from pydantic import Field, model_validator

from transformer_mt.config.augment import AugmentConfig
from transformer_mt.config.corpus import (
    LANGUAGE,
    Corpora,
    Corpus,
    FromTrainCorpus,
    HeldOut,
    HeldOuts,
    Readable,
    corpus_kind,
)
from transformer_mt.config.filter import FilterConfig
from transformer_mt.config.section import Changeable, Location, Positive, Section


class DataConfig(Section):
    """What is translated into what, and from which sentence pairs."""

    source_lang: str = Field(pattern=LANGUAGE)
    """Language code of the source (`en`); also the default column."""
    target_lang: str = Field(pattern=LANGUAGE)
    """Language code of the target (`de`); also the default column, and it chooses BLEU's tokenizer."""
    hub: Location[str | None] = None
    """Default `hub` of the corpora below."""
    config: Location[str | None] = None
    """Default `config` of the corpora below."""
    train: Location[Corpora]
    """The pairs trained on: a corpus, or a list of corpora."""
    temperature: float = Field(1.0, ge=1.0, le=100.0)
    """With several training corpora: weights are multiplied by (N_max / N_i)^(1 - 1/T), N being the pairs
    after cleaning; 1 changes nothing, large values use all corpora equally often.
    """
    valid: Location[HeldOuts]
    """The pairs that say when to stop and which checkpoint is best: a set, or a list of sets."""
    test: Location[list[HeldOut]] = Field([])
    """The pairs `evaluate` scores on; training pairs that stand here are left out."""
    max_length: Positive = 256
    """Longest side of a training pair, and longest source translated in one piece, in pieces with
    end-of-sentence.
    """
    max_length_ratio: float = Field(4.0, ge=1.0)
    """A pair is dropped when its longer side has more pieces than this times the shorter's, plus ten."""
    remove_duplicates: bool | Literal["near"] = True
    """Keep only the first of identical training pairs; near: also of those that differ only in capitals,
    spacing, marks and the values of digits.
    """
    filter: FilterConfig = FilterConfig()
    """Cleaning rules of the training corpora."""
    augment: Changeable[AugmentConfig] = AugmentConfig()
    """Changes of training pairs to how people also write."""

    @model_validator(mode="before")
    @classmethod
    def _inherit_hub(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not data.get("hub"):
            if isinstance(data, dict) and data.get("config"):
                raise ValueError(
                    f"data.config must stand with data.hub, of which it is one, but is {data['config']} alone"
                )
            return data

        def complete(corpus: Any) -> Any:
            if not isinstance(corpus, dict) or corpus_kind(corpus) != "hub" or "hub" in corpus:
                return corpus
            inherited = {"hub": data["hub"]} | ({"config": data["config"]} if data.get("config") else {})
            return inherited | corpus

        data = dict(data)
        for key in ("train", "valid", "test"):
            if isinstance(data.get(key), list):
                data[key] = [complete(corpus) for corpus in data[key]]
            elif key in data:
                data[key] = complete(data[key])
        return data

    @model_validator(mode="after")
    def _check_corpora(self) -> "DataConfig":
        if not self.entries:
            raise ValueError("data.train must be a corpus or a list of corpora, but is an empty list")
        names = [entry.name for entry in self.entries if entry.name]
        if len(set(names)) < len(names):
            raise ValueError(
                f"the names of the corpora in data.train must differ, but are {', '.join(names)}"
            )
        if any(e.several_references or isinstance(getattr(e, "target", None), list) for e in self.entries):
            raise ValueError("data.train must not have several references, which only test sets have")
        if not self.valid_sets:
            raise ValueError("data.valid must be a set or a list of sets, but is an empty list")
        names = [c.name for c in self.valid_sets if not isinstance(c, FromTrainCorpus) and c.name]
        if len(set(names)) < len(names):
            raise ValueError(f"the names of the sets in data.valid must differ, but are {', '.join(names)}")
        for key, corpora in (("data.valid", self.valid_sets), ("data.test", self.test)):
            if any(corpus.weight != 1.0 for corpus in corpora):
                raise ValueError(f"{key} must not have a weight, which only training corpora have")
            if any(getattr(corpus, "filter", None) for corpus in corpora):
                raise ValueError(f"{key} must not have a filter: a score is of the whole set")
            if sum(isinstance(corpus, FromTrainCorpus) for corpus in corpora) > 1:
                raise ValueError(f"{key} must have at most one from_train, but has several")
        return self

    @property
    def entries(self) -> list[Corpus]:
        """The training corpora."""
        return self.train if isinstance(self.train, list) else [self.train]

    @property
    def valid_sets(self) -> list[HeldOut]:
        """The validation sets."""
        return self.valid if isinstance(self.valid, list) else [self.valid]

    def filter_of(self, entry: Corpus) -> FilterConfig:
        """The cleaning rules of a training corpus."""
        return self.filter if entry.filter is None else entry.filter

    def languages_of(self, corpus: Readable) -> tuple[str, str]:
        """Source and target language of a corpus."""
        return corpus.source_lang or self.source_lang, corpus.target_lang or self.target_lang

    @property
    def tags(self) -> list[str]:
        """The tags of all corpora, in order."""
        tags = (corpus.tag for corpus in [*self.entries, *self.valid_sets, *self.test])
        return list(dict.fromkeys(tag for tag in tags if tag))
