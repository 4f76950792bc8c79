"""The whole way of back-translation in one file: backward model, synthetic sources, forward model."""

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from transformer_mt.config import Config, DataConfig, DecodeConfig
from transformer_mt.config.config import NAME_PATTERN
from transformer_mt.config.load import load_config, load_yaml
from transformer_mt.config.messages import sentence
from transformer_mt.config.parts.filter import FilterConfig
from transformer_mt.config.parts.section import Section
from transformer_mt.data.cleaning.rules import rules_of
from transformer_mt.data.corpora.file import FileCorpus
from transformer_mt.data.corpora.kind import TAG
from transformer_mt.errors import InputError
from transformer_mt.experiments.origin import record_origin
from transformer_mt.experiments.synthetic import (
    PairSelection,
    SyntheticCorpusTask,
    TextSource,
    check_columns,
    counts_in_words,
    make_corpus,
    with_corpora,
)
from transformer_mt.files import digest
from transformer_mt.locks import set_aside, start_over
from transformer_mt.messages import say
from transformer_mt.runs.folder import RunFolder, facts_of
from transformer_mt.training.loop import train
from transformer_mt.translation.translator import Translator


class ChainConfig(Section):
    """The YAML of a chain. Paths of configs are seen from this file."""

    name: str = Field(pattern=NAME_PATTERN)
    """Its folder is runs/NAME; by default the name of the YAML file."""
    backward: str
    """The config of the model from the target to the source language, or the folder of a trained one."""
    text: list[str] = Field(min_length=1)
    """Files of monolingual text in the target language."""
    decode: dict[str, Any] = Field({})
    """Settings of the backward model's search that win over its config's."""
    filter: FilterConfig = FilterConfig(copy=True, script=True)
    """Cleaning rules of the synthetic pairs."""
    keep: float = Field(1.0, gt=0.0, le=1.0)
    """The share of them with the best scores that is kept."""
    forward: str
    """The config of the model from the source to the target language; the synthetic pairs are added to its
    corpora.
    """

    @field_validator("filter")
    @classmethod
    def _rules_that_drop(cls, chosen: FilterConfig) -> FilterConfig:
        if chosen.model_score or chosen.detokenize or chosen.encoding == "repair":
            raise ValueError(
                "filter must hold rules that drop pairs, but has model_score, detokenize or encoding: "
                "repair; use keep instead of model_score"
            )
        return chosen

    tag: str | None = Field(None, pattern=TAG)
    """A piece before each synthetic source, such as <bt> (Caswell et al. 2019)."""
    weight: float = Field(1.0, gt=0.0, le=1000.0)
    """How many times per epoch each synthetic pair is used."""


def run_chain(path: Path, out: Path | None, fresh: bool = False) -> Path:
    """Train the backward model, translate the text, train the forward model; gives back its folder.

    A step that was interrupted is resumed, and one that is done is not done again. `fresh` moves an old
    folder aside first.
    """
    chain = load_yaml(ChainConfig, path)
    folder = out or Path("runs") / chain.name
    backward_path = Path(chain.backward) if Path(chain.backward).is_dir() else path.parent / chain.backward
    forward = load_config(path.parent / chain.forward)
    backward = RunFolder(backward_path).config() if backward_path.is_dir() else load_config(backward_path)
    _check_directions(path, backward.data, forward.data)
    _check_search(path, {**backward.decode.model_dump(), **chain.decode})
    for text in chain.text:
        if not Path(text).is_file():
            raise InputError(f"{path}: text must be files, but {text} is not there")
    texts = TextSource.of_files([Path(text) for text in chain.text])
    if texts.total == 0:
        raise InputError(f"{path}: text must have lines, but {', '.join(chain.text)} is empty")
    if not fresh and RunFolder(folder).config_file.exists():
        raise InputError(
            f"{folder}: must be a folder of its own for the chain, but is that of a training; give another"
        )
    languages = forward.data.source_lang, forward.data.target_lang
    check_columns(languages)
    rules_of(chain.filter, languages)  # an extra that is missing, or a language that a rule does not know
    if fresh:
        start_over(folder, [backward_path, *map(Path, chain.text)])
    trained = backward_path if backward_path.is_dir() else train(backward, folder / "backward")
    synthetic = folder / "synthetic.jsonl"
    translator = Translator.load(trained, forward.train.device, decode=chain.decode)
    if len(backward.data.targets) > 1:
        translator = translator.towards(forward.data.source_lang, forward.data.target_lang)
    choice = PairSelection(chain.filter, chain.keep)
    step = SyntheticCorpusTask(translator, [trained], texts, is_source=False, choice=choice)
    counts = make_corpus(step, synthetic, replaces=True)
    if counts:
        say(f"{synthetic}: {counts_in_words(counts)}")
    _set_other_aside(folder / "forward", synthetic)
    del translator, step  # its memory is for the training
    return train(_with_synthetic(forward, chain, synthetic), folder / "forward")


def _set_other_aside(forward: Path, synthetic: Path) -> None:
    """Move a forward model aside that was trained on other pairs than those that are there now."""
    origin, pairs = forward.with_name("forward.origin.json"), digest(synthetic)
    before = facts_of(origin).get("synthetic pairs", pairs)
    if before != pairs and RunFolder(forward).config_file.exists():
        say(f"{forward}: was trained on other synthetic pairs; that is now {set_aside(forward)}")
    record_origin(origin, {"synthetic pairs": pairs})


def _check_directions(path: Path, backward: DataConfig, forward: DataConfig) -> None:
    wanted = forward.target_lang, forward.source_lang
    # A corpus may call the languages by the names of its columns.
    own = (backward.source_lang, backward.target_lang)
    known = backward.directions if len(backward.targets) > 1 else [own]
    if wanted not in known:
        found = ", ".join(f"{source} to {target}" for source, target in known)
        raise InputError(
            f"{path}: backward must translate {wanted[0]} to {wanted[1]}, but translates {found}"
        )


def _check_search(path: Path, decode: dict[str, Any]) -> None:
    """InputError, before hours of work, if there is no such search."""
    try:
        DecodeConfig.model_validate(decode)
    except ValidationError as error:
        lines = [sentence(problem, {}, DecodeConfig) for problem in error.errors()]
        raise InputError(
            *(part for line in lines for part in [f"{path}: decode: ", *line, "\n"][:-1])
        ) from None


def _with_synthetic(forward: Config, chain: ChainConfig, synthetic: Path) -> Config:
    corpus = FileCorpus(
        name="synthetic", file=str(synthetic), tag=chain.tag, weight=chain.weight, filter=FilterConfig(),
        synthetic=True, columns=[forward.data.source_lang, forward.data.target_lang],
    )  # fmt: skip
    return with_corpora(forward, [*forward.data.entries, corpus])
