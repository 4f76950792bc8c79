"""All steps of back-translation from one YAML file: train models, translate, and train the forward model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from transformer_mt.companions.lab.synthetic import (
    PairSelection,
    Runs,
    SyntheticCorpusTask,
    Teacher,
    TextSource,
    check_columns,
    check_links,
    counts_in_words,
    is_described,
    make_corpus,
    open_teacher,
    with_corpora,
)
from transformer_mt.companions.lab.translated import record_origin, start_over
from transformer_mt.config import Config, DataConfig, DecodeConfig
from transformer_mt.config.error_sentences import sentences
from transformer_mt.config.load import as_overrides, load_config, load_yaml
from transformer_mt.config.root import NAME_PATTERN
from transformer_mt.corpora.corpus import TAG
from transformer_mt.corpora.file import FileCorpus
from transformer_mt.data.cleaning_rules import rules_of
from transformer_mt.errors import InputError
from transformer_mt.files import digest, set_aside
from transformer_mt.messages import say
from transformer_mt.run_folder import RunFolder, after_training, facts_of
from transformer_mt.settings.corpus_keys import FilterConfig
from transformer_mt.settings.section import Conflict, Section
from transformer_mt.training import train
from transformer_mt.translator import Translator


class ChainConfig(Section):
    """The YAML of a chain. Paths of configs are seen from this file."""

    name: str = Field(pattern=NAME_PATTERN)
    """Its folder is runs/NAME; by default the name of the YAML file."""
    backward: str
    """The config of the model from the target to the source language, the folder of a trained one, or the
    YAML file that describes a language model.
    """
    text: list[str] = Field([])
    """Files of monolingual text in the target language."""
    diversify: int = Field(0, ge=0, le=9)
    """How many models of each direction, which differ in the seed, translate the pairs that the forward model
    is trained on (data diversification, Nguyen et al. 2020).
    """
    teachers: dict[str, Any] = Field({})
    """Settings of these models that win over those of `backward` and `forward`, as train.max_updates."""
    student: dict[str, Any] = Field({})
    """Settings of the model that is trained last; they win over those of `forward`."""
    decode: dict[str, Any] = Field({})
    """Search settings of the models that translate; they win over the settings in their configs."""
    filter: FilterConfig = FilterConfig(copy=True, script=True)
    """Cleaning rules of the synthetic pairs."""
    keep: float = Field(1.0, gt=0.0, le=1.0)
    """The share of them with the best scores that is kept."""
    forward: str
    """The config of the model from the source to the target language; the synthetic pairs are added to its
    corpora.
    """

    def conflicts(self) -> Iterator[Conflict]:
        if not self.text and not self.diversify:
            yield "text must name a file, or diversify be 1 or more"
        if self.teachers and not self.diversify:
            yield "teachers must be left out without diversify"

    @field_validator("filter")
    @classmethod
    def _rules_that_drop(cls, chosen: FilterConfig) -> FilterConfig:
        if chosen.detokenize or chosen.encoding == "repair":
            raise ValueError("filter must hold rules that drop pairs, but has detokenize or encoding: repair")
        return chosen

    tag: str | None = Field(None, pattern=TAG)
    """A token before each source of the text, such as <bt> (Caswell et al. 2019)."""
    weight: float = Field(1.0, gt=0.0, le=1000.0)
    """How many times per epoch each pair of the text is used."""


@dataclass(frozen=True)
class Step:
    """A model that translates text to a corpus."""

    folder: str
    """The name of the model's folder in that of the chain."""
    model: Config | Path | Teacher
    """The config to train it with, the folder of a trained model, or a teacher that needs no training."""
    text: TextSource
    is_source: bool
    """True if the text is the source of the pairs, False if it is their target."""
    corpus: str
    """The name of the corpus, and of its file."""
    tag: str | None = None
    weight: float = 1.0


def run_chain(path: Path, out: Path | None, fresh: bool = False) -> Path:
    """Train the models that translate, translate, and train the forward model. Returns its folder.

    An interrupted step is resumed, and a finished step is not repeated. `fresh` moves an old folder aside
    first.
    """
    chain = load_yaml(ChainConfig, path)
    folder = out or Path("runs") / chain.name
    forward = _config(path, chain.forward, "student", chain.student)
    _check_folder_and_rules(chain, folder, forward, fresh)
    steps = _steps(chain, path, forward)
    if fresh:
        start_over(folder, [_backward_path(chain, path), *map(Path, chain.text)])
    corpora = [_made(step, chain, forward, folder) for step in steps]
    del steps  # the memory of their texts is for the training
    _set_other_aside(folder / "forward", [Path(corpus.file) for corpus in corpora])
    trained = train(with_corpora(forward, [*forward.data.entries, *corpora]), folder / "forward")
    after_training(trained)
    return trained


def _check_folder_and_rules(chain: ChainConfig, folder: Path, forward: Config, fresh: bool) -> None:
    if not fresh and RunFolder(folder).config_file.exists():
        raise InputError(
            f"{folder}: must be a separate folder for the chain, but belongs to a training; give another"
        )
    languages = forward.data.source_lang, forward.data.target_lang
    check_columns(languages)
    check_links(forward)
    rules_of(chain.filter, languages)  # an extra that is missing, or a language that a rule does not know


def _backward_path(chain: ChainConfig, path: Path) -> Path:
    """The folder of the trained backward model, or its config."""
    given = Path(chain.backward)
    return given if given.is_dir() else path.parent / given


def _steps(chain: ChainConfig, path: Path, forward: Config) -> list[Step]:
    """The steps before the forward model is trained. Raises InputError, before any work, if files are
    missing or empty, or if a model is for other languages.
    """
    backward_path = _backward_path(chain, path)
    described = _described(chain, path, forward)
    if described is not None:
        text = _texts(chain, path).without_sets(forward.data)
        return [Step("backward", described, text, False, "synthetic", chain.tag, chain.weight)]
    is_trained = backward_path.is_dir()
    backward = RunFolder(backward_path).config() if is_trained else load_config(backward_path)
    _check_directions(path, backward.data, forward.data)
    _check_search(path, {**backward.decode.model_dump(), **chain.decode})
    steps = []
    if chain.text:
        model = backward_path if is_trained else backward
        steps.append(
            Step("backward", model, _texts(chain, path), False, "synthetic", chain.tag, chain.weight)
        )
    if not chain.diversify:
        return steps
    if is_trained:
        raise InputError(f"{path}: backward must be a config if diversify is on, but is a folder")
    sides = [("backward", chain.backward, False), ("forward", chain.forward, True)]
    teachers = [
        (name, _config(path, file, "teachers", chain.teachers), _own_text(forward.data, is_source), is_source)
        for name, file, is_source in sides
    ]
    for number in range(chain.diversify):
        for side, config, text, is_source in teachers:
            name, seeded = f"{side}-{number + 1}", config.model_copy(update={"seed": config.seed + number})
            steps.append(Step(name, seeded, text, is_source, name))
    return steps


def _described(chain: ChainConfig, path: Path, forward: Config) -> Teacher | None:
    """The language model that the file `backward` describes; None if `backward` is a config or a run."""
    file, languages = _backward_path(chain, path), (forward.data.target_lang, forward.data.source_lang)
    teacher = open_teacher(file, languages) if file.is_file() and is_described(file) else None
    if teacher and (wrong := [key for key in ("diversify", "decode") if getattr(chain, key)]):
        raise InputError(f"{path}: {wrong[0]} must be left out if backward is a language model")
    return teacher


def _own_text(data: DataConfig, is_source: bool) -> TextSource:
    """The sources, or the targets, of the forward model's own pairs."""
    languages = data.source_lang, data.target_lang
    entries = [e for e in data.entries if not e.is_text and data.languages_of(e) == languages]
    text = TextSource.of_corpora(data, entries, is_source)
    if not text.total:
        raise InputError(
            f"data.train must have pairs from {' to '.join(languages)} to diversify, but has none"
        )
    return text


def _config(path: Path, file: str, key: str, settings: dict[str, Any]) -> Config:
    """The config in a file next to that of the chain, with the settings of one of the chain's keys."""
    try:
        return load_config(path.parent / file, as_overrides(settings))
    except InputError as error:
        raise InputError(str(error).replace("command line: ", f"{path}: {key}: ")) from None


def _texts(chain: ChainConfig, path: Path) -> TextSource:
    for text in chain.text:
        if not Path(text).is_file():
            raise InputError(f"{path}: text must name files, but {text} is missing")
    texts = TextSource.of_files([Path(text) for text in chain.text])
    if texts.is_empty:
        raise InputError(f"{path}: text must have lines, but {', '.join(chain.text)} is empty")
    return texts


def _made(step: Step, chain: ChainConfig, forward: Config, folder: Path) -> FileCorpus:
    """The corpus of the step. Its model is trained first if that has not been done yet."""
    file = folder / f"{step.corpus}.jsonl"
    languages = forward.data.source_lang, forward.data.target_lang
    teacher = _teacher(step, chain, forward, folder)
    task = SyntheticCorpusTask(teacher, step.text, step.is_source, PairSelection(chain.filter, chain.keep))
    if counts := make_corpus(task, file, replaces=True):
        say(f"{file}: {counts_in_words(counts)}")
    return FileCorpus(
        name=step.corpus, file=str(file), tag=step.tag, weight=step.weight, filter=FilterConfig(),
        synthetic=True, columns=list(languages),
    )  # fmt: skip


def _teacher(step: Step, chain: ChainConfig, forward: Config, folder: Path) -> Teacher:
    """The teacher of this step. Its model is trained first if that has not been done yet."""
    if not isinstance(step.model, Config | Path):
        return step.model
    trained = step.model if isinstance(step.model, Path) else train(step.model, folder / step.folder)
    translator = Translator.load(trained, forward.train.device, decode=chain.decode)
    if len(translator.directions) > 1:
        languages = forward.data.source_lang, forward.data.target_lang
        source, target = languages if step.is_source else languages[::-1]
        translator = translator.towards(target, source)
    return Runs(translator, [trained])


def _set_other_aside(forward: Path, synthetic: Sequence[Path]) -> None:
    """Move the forward model aside if it was trained on other synthetic pairs than the present ones."""
    origin, pairs = forward.with_name("forward.origin.json"), digest(*synthetic)
    before = facts_of(origin).get("synthetic pairs", pairs)
    if before != pairs and RunFolder(forward).config_file.exists():
        say(f"{forward}: was trained on other synthetic pairs, so it is moved to {set_aside(forward)}")
    record_origin(origin, {"synthetic pairs": pairs})


def _check_directions(path: Path, backward: DataConfig, forward: DataConfig) -> None:
    wanted = forward.target_lang, forward.source_lang
    # A corpus may call the languages by the names of its columns.
    direction = (backward.source_lang, backward.target_lang)
    known = backward.directions if len(backward.directions) > 1 else [direction]
    if wanted not in known:
        directions = ", ".join(f"{source} to {target}" for source, target in known)
        raise InputError(
            f"{path}: backward must translate {wanted[0]} to {wanted[1]}, but translates {directions}"
        )


def _check_search(path: Path, decode: dict[str, Any]) -> None:
    """InputError, before hours of work, if there is no such search."""
    try:
        DecodeConfig.model_validate(decode)
    except ValidationError as error:
        lines = sentences(error, {}, DecodeConfig)
        raise InputError(
            *(part for line in lines for part in [f"{path}: decode: ", *line, "\n"][:-1])
        ) from None
