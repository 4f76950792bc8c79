"""The YAML's `data` section: which sentence pairs."""

from typing import Any

from pydantic import Field, model_validator

from transformer_mt.config.corpus import Corpus, corpus_kind
from transformer_mt.config.section import Location, Positive, Section


class DataConfig(Section):
    """What is translated into what, and from which sentence pairs."""

    source_lang: str = Field(pattern=r"^[A-Za-z]{2,8}([_-]\w+)*$")
    """Language code of the source (`en`); also the default column."""
    target_lang: str = Field(pattern=r"^[A-Za-z]{2,8}([_-]\w+)*$")
    """Language code of the target (`de`); also the default column, and it chooses BLEU's tokenizer."""
    hub: Location[str | None] = None
    """Default `hub` of the corpora below."""
    config: Location[str | None] = None
    """Default `config` of the corpora below."""
    train: Location[Corpus]
    """The pairs trained on."""
    valid: Location[Corpus]
    """The pairs that say when to stop and which checkpoint is best."""
    test: Location[list[Corpus]] = Field([])
    """The pairs `evaluate` scores on; training pairs that stand here are left out."""
    max_length: Positive = 256
    """Longest side of a training pair, and longest source translated in one piece, in pieces with
    end-of-sentence.
    """
    max_length_ratio: float = Field(4.0, ge=1.0)
    """A pair is dropped when its longer side has more pieces than this times the shorter's, plus ten."""
    remove_duplicates: bool = True
    """Keep only the first of identical training pairs."""

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
        for key in ("train", "valid"):
            if key in data:
                data[key] = complete(data[key])
        if isinstance(data.get("test"), list):
            data["test"] = [complete(corpus) for corpus in data["test"]]
        return data
