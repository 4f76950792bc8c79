"""The YAML's `data` section: which sentence pairs."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from transformer_mt.config.build_part import parts_of
from transformer_mt.corpora.corpus import Corpus, Languages
from transformer_mt.corpora.corpus_kinds import EvaluationCorpus, TrainingCorpus, kind_of
from transformer_mt.corpora.held_out import AnySet
from transformer_mt.corpora.hub import HubCorpus
from transformer_mt.settings.corpus_keys import FilterConfig, Language, label_piece
from transformer_mt.settings.objectives import objective_class, objectives_of
from transformer_mt.settings.part import PartName, PartOf
from transformer_mt.settings.section import (
    Changeable,
    Conflict,
    Location,
    Positive,
    Probability,
    Section,
    one_of,
)


class AugmentConfig(Section):
    """Probabilities of changes, sampled again for each pair and epoch. A pair may get several changes."""

    upper: Probability = 0.0
    """Both sides in capitals."""
    title: Probability = 0.0
    """Both sides in title case."""
    lower: Probability = 0.0
    """The source in lower case."""
    punctuation: Probability = 0.0
    """Both sides without the final mark, or with it doubled or tripled."""
    typos: Probability = 0.0
    """The source with misspelled words."""

    def conflicts(self) -> Iterator[Conflict]:
        if (total := self.upper + self.title + self.lower) > 1:
            yield (
                "data.augment.upper, title and lower must sum to at most 1, as a pair gets one of them, "
                f"but are {total:g}"
            )

    @property
    def is_on(self) -> bool:
        """True if anything is changed."""
        return any(self.model_dump().values())


class PreparationConfig(Section):
    """Engine and folder of the preparation of large corpora."""

    engine: Annotated[PartName, PartOf("preparation_engine")] = PartName("local")
    """Where data are prepared: local uses processes on this machine. Companions may bring others: ray runs
    tasks on the Ray cluster at RAY_ADDRESS, by default the one this machine belongs to (RAY_ADDRESS=local
    starts one here), and needs `folder`.
    """
    folder: str | None = None
    """Folder for prepared data, which all machines can access: a path, or a URL such as s3://bucket/prepared;
    by default the cache.
    """

    def conflicts(self) -> Iterator[Conflict]:
        if self.engine != "local" and self.folder is None:
            yield (
                f"engine: {self.engine} also needs `folder`: a path that all machines see, or a URL such as "
                "s3://bucket/prepared"
            )


class DenoiseConfig(Section):
    """Noise of the objective `denoise`, sampled again in each epoch (Lewis et al. 2020, section 2.2; the
    defaults are those of Liu et al. 2020). The sentences of a text are shuffled.
    """

    mask: float = Field(0.35, ge=0.0, lt=1.0)
    """Share of the words to hide, in spans with one <mask> each."""
    span: float = Field(3.5, ge=1.0, le=100.0)
    """Mean length of a span in words (Poisson); one of length 0 inserts a <mask>."""


class MaskedLmConfig(Section):
    """Masks of the objective `masked_lm` (Devlin et al. 2019, section 3.1)."""

    mask: float = Field(0.15, gt=0.0, lt=1.0)
    """Share of the tokens to predict: of these, 80 % become <mask>, 10 % another token, and 10 % stay.
    """
    next_sentence: bool = False
    """Append to each text the next one of its document or, with probability 0.5, a random one; the first
    token predicts which it is. A blank line ends a document.
    """


if TYPE_CHECKING:
    LanguagePieces = Literal["auto", "both"] | bool
    Duplicates = bool | Literal["near"]
else:
    LanguagePieces = one_of(Literal["auto", "both"] | bool, "true, false, both or auto")
    Duplicates = one_of(bool | Literal["near"], "true, false or near")

_list_or_one = Discriminator(lambda corpora: "list" if isinstance(corpora, list) else "one")
Corpora = Annotated[
    Annotated[TrainingCorpus, Tag("one")] | Annotated[list[TrainingCorpus], Tag("list")], _list_or_one
]
"""One corpus, or several."""
EvaluationCorpora = Annotated[
    Annotated[EvaluationCorpus, Tag("one")] | Annotated[list[EvaluationCorpus], Tag("list")], _list_or_one
]
"""One set, or several."""


NEXT = ("random", "next")
"""Labels of `masked_lm.next_sentence`."""


class NewPiecesConfig(Section):
    """Tokens to append to the parent's vocabulary."""

    text: str | None = None
    """A text file to learn them from, in a language that the parent splits too finely."""
    size: Annotated[int, Field(ge=8, le=1_000_000)] = 2000
    """Size of the learnt vocabulary; only tokens that the parent lacks are added."""

    def conflicts_with(self, config: Any) -> Iterator[Conflict]:
        key = "new_languages" if config.data.new_languages else "new_pieces.text" if self.text else None
        if key is not None and config.init_from is None:
            yield f"data.{key} must be left out without init_from, which it extends"


class DataConfig(Section):
    """The languages and the sentence pairs of a translation model, or the text of another model."""

    language: Language | None = None
    """Language code of the text if nothing is translated; replaces source_lang and target_lang."""
    source_lang: Language
    """Language code of the source (`en`); also the default column."""
    target_lang: Language
    """Language code of the target (`de`); also sets the default column and BLEU's tokenizer."""
    hub: Location[str | None] = None
    """Default `hub` of the corpora below."""
    config: Location[str | None] = None
    """Default `config` of the corpora below."""
    train: Location[Corpora]
    """Training pairs: a corpus or a list of corpora."""
    language_pieces: LanguagePieces = "auto"
    """Put a target-language token before each source; auto: if there are several target languages, or as in
    the parent. both: each side begins with the token of its own language, as in M2M-100 and NLLB.
    """
    new_languages: dict[str, Language] = Field({})
    """Maps each new language to a similar one that the parent knows: `{ltg: lav}`. The token of the new
    language is initialised from the similar one's.
    """
    new_pieces: NewPiecesConfig = NewPiecesConfig()
    """Tokens to append to the parent's vocabulary."""
    temperature: float = Field(1.0, ge=1.0, le=100.0)
    """Balances corpora of different sizes: weights are multiplied by (N_max / N)^(1 - 1/T). N is the number
    of pairs of the corpus after cleaning, or of its direction if there are several. 1 changes nothing;
    a large T uses all corpora equally.
    """
    valid: Location[EvaluationCorpora]
    """Pairs that decide when to stop and which checkpoint is best: a set or a list of sets."""
    test: Location[list[EvaluationCorpus]] = Field([])
    """Test sets for `evaluate`; their pairs are left out of the training data."""
    leave_out: Literal["sources", "either"] | None = None
    """Which training pairs to leave out because they overlap with the validation and test sets: `sources`,
    pairs whose source is in these sets, or `either`, also pairs whose target is. Default: either with several
    directions, whose pairs often share a target (Europarl, TED), else sources, because one short target may
    translate many sources. `evaluate` counts a sentence as seen if either of its sides was seen.
    """
    max_length: Positive = 256
    """Maximum number of tokens, including end-of-sentence, in each side of a training pair, and in a source
    that is translated without splitting it.
    """
    max_length_ratio: float = Field(4.0, ge=1.0, allow_inf_nan=True)
    """Drop pairs whose longer side has more tokens than this times the shorter side's, plus ten; `.inf` is
    no limit.
    """
    remove_duplicates: Duplicates = True
    """Keep only the first of identical training pairs; near: also of those that differ only in capitals,
    spacing, punctuation and the values of digits.
    """
    window_pairs: Positive = 16_000_000
    """Maximum number of pairs that are shuffled together: a larger corpus is trained on in windows of
    this many, mixed anew in each epoch, so that neither memory nor disk must hold all of it.
    """
    preparation: Location[PreparationConfig] = PreparationConfig()
    """Preparation of large corpora."""
    filter: FilterConfig = FilterConfig()
    """Cleaning rules of the training corpora."""
    augment: Changeable[AugmentConfig] = AugmentConfig()
    """Changes of letter case, final marks and spelling."""
    changes: Changeable[list[Annotated[PartName, PartOf("change")]]] = Field([])
    """Changes of training rows that companions bring, in this order, after augment: `terms` writes terms of a
    glossary into sources.
    """
    denoise: DenoiseConfig = DenoiseConfig()
    """The noise of corpora with objective: denoise."""
    masked_lm: MaskedLmConfig = MaskedLmConfig()
    """The masks of corpora with objective: masked_lm."""
    labels: list[Annotated[str, Field(min_length=1)]] = Field([])
    """The labels of corpora with objective: classification; each target is one of them."""

    @model_validator(mode="before")
    @classmethod
    def _one_language(cls, data: Any) -> Any:
        """Use `language` as source_lang, target_lang and the language of each plain-text corpus."""
        if not isinstance(data, dict) or not (language := data.get("language")):
            return data

        def complete(corpus: Any) -> Any:
            objective = corpus.get("objective") if isinstance(corpus, dict) else None
            is_text = isinstance(objective, str) and objective_class(objective).is_plain_text
            return {"language": language} | corpus if is_text else corpus

        data = {"source_lang": language, "target_lang": language} | data
        for key in ("train", "valid", "test"):
            if key in data:
                corpora = data[key]
                data[key] = list(map(complete, corpora)) if isinstance(corpora, list) else complete(corpora)
        return data

    @model_validator(mode="before")
    @classmethod
    def _inherit_hub(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not data.get("hub"):
            if isinstance(data, dict) and data.get("config"):
                raise ValueError(f"data.config requires data.hub, but is {data['config']} alone")
            return data

        def complete(corpus: Any) -> Any:
            if not isinstance(corpus, dict) or kind_of(corpus) != HubCorpus.__name__ or "hub" in corpus:
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

    def conflicts(self) -> Iterator[Conflict]:
        if not self.entries:
            yield "data.train must be a corpus or a list of corpora, but is an empty list"
            return
        names = [entry.name for entry in self.entries if entry.name]
        if len(set(names)) < len(names):
            yield f"the names of the corpora in data.train must differ, but are {', '.join(names)}"
        if any(entry.has_several_references for entry in self.entries):
            yield "data.train must not have several references, which only test sets have"
        if not self.valid_sets:
            yield "data.valid must be a set or a list of sets, but is an empty list"
        names = [corpus.name for corpus in self.valid_sets if corpus.name]
        if len(set(names)) < len(names):
            yield f"the names of the sets in data.valid must differ, but are {', '.join(names)}"
        if self.language and (self.source_lang, self.target_lang) != (self.language, self.language):
            yield "data.language must be left out with data.source_lang and data.target_lang"
        if self.directions:
            yield from self._of_languages()
        for key, corpora in (("data.valid", self.valid_sets), ("data.test", self.test)):
            if any(corpus.weight != 1.0 for corpus in corpora):
                yield f"{key} must not have a weight, which only training corpora have"
            if any(corpus.synthetic for corpus in corpora):
                yield f"{key} must not be synthetic: scores need text by people"
            if any(corpus.filter for corpus in corpora):
                yield f"{key} must not have a filter: the whole set is scored"
            if sum(corpus.is_held_out for corpus in corpora) > 1:
                yield f"{key} must have at most one from_train, but has several"
        yield from self._of_objectives()

    def _of_objectives(self) -> Iterator[Conflict]:
        trained = (
            ("data.valid", self.valid_sets, self.objectives),
            ("data.test", self.test, [self.main_objective]),
        )
        for key, corpora, objectives in trained:
            for corpus in corpora:
                if (objective := self.objective_of(corpus)) not in objectives:
                    yield (
                        f"{key} must have the objective of a training corpus ({', '.join(objectives)}), but "
                        f"{corpus.describe()} has {objective}"
                    )

    def conflicts_with(self, config: Any) -> Iterator[Conflict]:
        if self.language_pieces == "both" and not config.tokenizer.shared and not config.init_from:
            yield "tokenizer.shared must be true with data.language_pieces: both, but is false"
        if config.init_from and "kind" not in config.model.model_fields_set:
            return  # the parent sets the kind; this is checked again when it is known
        kind = config.model.kind
        separate = [corpus for corpus in (*self.valid_sets, *self.test) if not corpus.is_held_out]
        sets = [*self.entries, *separate]
        if wrong := next(
            (corpus for corpus in sets if kind not in objective_class(corpus.objective).model_kinds), None
        ):
            yield (
                f"objective must be {' or '.join(objectives_of(kind))} with model.kind: {kind}, but "
                f"{wrong.title} has {wrong.objective}"
            )
        if kind in ("encoder", "decoder"):
            yield from self._of_half(config, kind, sets)
        if self.augment.is_on and self.trains_labels:
            yield "data.augment must be left out with objective: classification"
        if self.trains_labels != bool(self.labels):
            yield "data.labels must be given if, and only if, a corpus has objective: classification"

    def _of_half(self, config: Any, kind: str, sets: Sequence[Any]) -> Iterator[Conflict]:
        """The conflicts with an encoder or a decoder alone."""
        if not (config.tokenizer.shared or config.init_from):
            yield f"tokenizer.shared must be true with model.kind: {kind}, but is false"
        if tag := next((corpus.tag for corpus in sets if corpus.tag), None):
            yield f"tag must be left out with model.kind: {kind}, but is {tag}"
        if self.language_pieces in (True, "both"):
            yield (
                f"data.language_pieces must be auto or false with model.kind: {kind}, but is "
                f"{str(self.language_pieces).lower()}"
            )

    def _of_languages(self) -> Iterator[Conflict]:
        if self.language_pieces is False and len(self.targets) > 1 and not all(e.tag for e in self.entries):
            yield (
                f"data.language_pieces must be auto or true with several target languages "
                f"({', '.join(self.targets)}) unless each training corpus has a tag, but is false: nothing "
                "would select a language"
            )
        sets = [*self.valid_sets, *self.test]
        if len(self.targets) == 1 and not any(corpus.reverse for corpus in [*self.entries, *sets]):
            return  # the codes may differ if the columns have other names
        if self.languages not in self.directions:
            yield (
                f"data.source_lang and data.target_lang must be those of a training corpus, but none is "
                f"{self.source_lang} to {self.target_lang}"
            )
        for key, corpora in (("data.valid", self.valid_sets), ("data.test", self.test)):
            for corpus in corpora:
                if corpus.is_held_out:
                    if len(self.targets) == 1:
                        continue
                    yield (
                        f"{key} must not be from_train with several target languages; give separate corpora"
                    )
                if (target := self.languages_of(corpus)[1]) not in self.targets:
                    yield (
                        f"{key} must be translated into a language of the training corpora "
                        f"({', '.join(self.targets)}), but a set is into {target}"
                    )

    @property
    def entries(self) -> list[Corpus]:
        """The training corpora."""
        return self.train if isinstance(self.train, list) else [self.train]

    @property
    def valid_sets(self) -> list[AnySet]:
        """The validation sets."""
        return self.valid if isinstance(self.valid, list) else [self.valid]

    def filter_of(self, entry: Corpus) -> FilterConfig:
        """The cleaning rules of a training corpus."""
        return self.filter if entry.filter is None else entry.filter

    @property
    def languages(self) -> Languages:
        """Source and target language of corpora that name none."""
        return self.source_lang, self.target_lang

    def languages_of(self, corpus: AnySet) -> Languages:
        """Source and target language of a corpus."""
        return corpus.direction(self.languages)

    @property
    def directions(self) -> list[tuple[str, str]]:
        """Source and target language of the training corpora, each pair once, in order; none where all are
        plain text.
        """
        of_entries = (entry.directions(self.languages) for entry in self.entries)
        return list(dict.fromkeys(direction for several in of_entries for direction in several))

    @property
    def has_vocabulary(self) -> bool:
        """True if the training pairs bring their vocabulary."""
        return any(entry.has_vocabulary for entry in self.entries)

    @property
    def leaves_out_targets(self) -> bool:
        """True if a pair with the target of an evaluation sentence is left out of the training."""
        return self.leave_out == "either" or (self.leave_out is None and len(self.directions) > 1)

    @property
    def languages_used(self) -> list[str]:
        """The languages of the training corpora, in order."""
        others = [
            self.languages_of(entry)[:1]
            for entry in self.entries
            if not objective_class(entry.objective).translates
        ]
        return list(dict.fromkeys(code for codes in (*self.directions, *others) for code in codes))

    @property
    def targets(self) -> list[str]:
        """The languages that the training corpora teach to write, in order."""
        texts = [
            entry.language for entry in self.entries
            if entry.is_text and "encoder" not in objective_class(entry.objective).model_kinds
        ]  # fmt: skip
        return list(dict.fromkeys([*(target for _, target in self.directions), *filter(None, texts)]))

    def objective_of(self, corpus: AnySet) -> PartName:
        """The objective of a corpus; a set held out of the training corpora has the main one."""
        return self.main_objective if corpus.is_held_out else corpus.objective

    @property
    def main_objective(self) -> PartName:
        """The objective that the model is trained for: the first objective of pairs, or the first of all
        objectives if all corpora are plain text.
        """
        paired = (objective for objective in self.objectives if not objective_class(objective).is_plain_text)
        return next(paired, self.objectives[0])

    @property
    def translates(self) -> bool:
        """True if a validation set is translated."""
        return any(self.translates_set(corpus) for corpus in self.valid_sets)

    def translates_set(self, corpus: AnySet) -> bool:
        """True if the targets of a set are translations of its sources."""
        return objective_class(self.objective_of(corpus)).translates

    @property
    def trains_labels(self) -> bool:
        """True if a training corpus has labels as targets."""
        return any(objective_class(objective).has_labels for objective in self.objectives)

    @property
    def objectives(self) -> list[PartName]:
        """The objectives of the training corpora, in order."""
        return list(dict.fromkeys(entry.objective for entry in self.entries))

    @property
    def temperature_groups(self) -> list[int]:
        """For each training corpus, the number of the group in which `temperature` counts it. A group has one
        objective and one direction (for plain text, one language). If there is only one direction or only one
        group, each corpus is a group of its own.
        """
        if len(self.directions) == 1:
            return list(range(len(self.entries)))
        groups = [(entry.objective, self.languages_of(entry)) for entry in self.entries]
        distinct = list(dict.fromkeys(groups))
        if len(distinct) == 1:
            return list(range(len(self.entries)))
        return [distinct.index(group) for group in groups]

    @property
    def has_language_pieces(self) -> bool:
        """True if a control token before each source names its target language."""
        return len(self.targets) > 1 if self.language_pieces == "auto" else bool(self.language_pieces)

    def language_piece(self, languages: Languages) -> str | None:
        """The control token before each source, such as `>>de<<`. It names the target language or, with
        `both`, the source language. None if sources have no such token.
        """
        source, target = languages
        return (
            f">>{source if self.language_pieces == 'both' else target}<<"
            if self.has_language_pieces
            else None
        )

    def target_piece(self, languages: Languages) -> str | None:
        """The control token that each target begins with; None if there is none."""
        return f">>{languages[1]}<<" if self.language_pieces == "both" else None

    def pieces_before(self, corpus: AnySet) -> list[str]:
        """The control tokens before each source of a corpus: for a language, and its tag."""
        return [piece for piece in (self.language_piece(self.languages_of(corpus)), corpus.tag) if piece]

    @property
    def tags(self) -> list[str]:
        """The tags of all corpora, in order."""
        tags = (corpus.tag for corpus in [*self.entries, *self.valid_sets, *self.test])
        return list(dict.fromkeys(tag for tag in tags if tag))

    @property
    def control_pieces(self) -> list[str]:
        """The control tokens of all corpora, in order."""
        corpora = [*self.entries, *self.valid_sets, *self.test]
        pieces = [
            piece
            for corpus in corpora
            for piece in (*self.pieces_before(corpus), self.target_piece(self.languages_of(corpus)))
        ]
        hidden = [
            token for objective in self.objectives for token in objective_class(objective).control_tokens
        ]
        others = [*hidden, *self.pieces_inside, *map(label_piece, self.all_labels)]
        return list(dict.fromkeys([*filter(None, pieces), *others]))

    @property
    def pieces_inside(self) -> list[str]:
        """The control tokens inside texts, which changes of rows write."""
        return [
            token
            for change, settings in parts_of("change", self.changes, "data.changes")
            for token in change.control_tokens(**settings)
        ]

    @property
    def reads_links(self) -> bool:
        """True if a change of rows needs word alignments."""
        return any(
            change.needs_links(**settings)
            for change, settings in parts_of("change", self.changes, "data.changes")
        )

    @property
    def has_next_sentences(self) -> bool:
        """True if the model learns to tell the next text of a document from a random one."""
        return self.masked_lm.next_sentence and "masked_lm" in self.objectives

    @property
    def all_labels(self) -> list[str]:
        """The classes predicted at the first token: labels, and whether one text follows the other."""
        follows = NEXT if self.has_next_sentences else ()
        return [*self.labels, *follows]
