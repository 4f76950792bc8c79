"""The base of every form a model is exported to: what it supports, how it is written and run."""

import argparse
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from transformer_mt.config import Config, DataConfig, DecodeConfig
from transformer_mt.config.train_section import GuidedAlignmentConfig, TrainConfig
from transformer_mt.corpora.corpus import Corpus, ImportedCorpus
from transformer_mt.corpora.held_out import AnySet, held_out_file
from transformer_mt.data.vocabulary.tokenizer import Tokenizer, tokenizer_files
from transformer_mt.model.interface import TranslationModel
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.result import Translation


@dataclass(frozen=True)
class TrainedRun:
    """A run that is exported, and what was loaded from its folder."""

    folder: RunFolder
    config: Config
    model: TranslationModel
    tokenizer: Tokenizer
    extras: Sequence[str] = ()
    """What the user wants to give away besides what translation needs (`EXTRAS` below)."""
    sentences: Sequence[str] = ()
    """The sentences of the proof: what the model will translate is like them."""


@dataclass(frozen=True)
class Output:
    """The translation of a line by another runtime."""

    translation: str
    score: float | None
    """log P / length^a, as ours; None if the runtime does not tell it."""
    tokens: Sequence[str] = ()
    """The pieces of the translation; empty if the runtime does not report them."""


OURS_ALONE = {"lowercase_capitals": False, "protect_usual": False}
"""Settings that turn off what only our translator does before and after the search."""


def num_positions(config: Config) -> int:
    """Number of positions of an exported model. Other runtimes keep a table of positions, so models whose
    positions are unlimited here get a limit there.
    """
    most = config.data.max_length
    return most if config.model.has_max_positions else max(2048, 3 * most)


class ExportFormat(Protocol):
    """A format that models are exported to."""

    name: str
    advice: str
    """The advice where a model cannot be exported."""
    quantization: str
    """How weights are stored: float32 or one of CTranslate2's others."""

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "ExportFormat":
        """Create the format from the command's options. InputError for options that it does not support."""
        ...

    proof_settings: ClassVar[dict[str, Any]]
    """Search settings that the proof overrides; all other settings are the run's."""

    def supported_settings(self, settings: DecodeConfig) -> tuple[DecodeConfig, list[str]]:
        """(the settings, with unsupported ones replaced by the only value this format supports; the names of
        the replaced settings).
        """
        ...

    def reasons_against(self, config: Config) -> list[str]:
        """Every reason why a model with this config cannot be exported, with key and required value."""
        ...

    def write(self, run: TrainedRun, folder: Path) -> None:
        """Write the model into an empty folder."""
        ...

    def translate(self, folder: Path, sentences: Sequence[str]) -> Sequence[Output]:
        """Translate with the foreign runtime."""
        ...

    def expected(self, translation: Translation) -> Output | None:
        """The output that the runtime must give if ours is `translation`; None if they cannot be compared,
        because the runtime splits or truncates the line elsewhere.
        """
        ...

    def metadata(self, config: Config) -> dict[str, Any]:
        """The entries of its metadata.json besides the facts of the model card."""
        ...

    def usage(self, config: Config, out: str) -> str:
        """How the export `out` is used, in Markdown for the model card."""
        ...

    def pack(self, folder: Path, out: Path, config: Config) -> None:
        """Move the proven folder to `out`."""
        ...


def reasons_against_text(data: DataConfig) -> list[str]:
    """Why a runtime for translation cannot use a model trained on plain text alone; empty for others."""
    return (
        [] if data.directions else [f"data.train must have translations, but has {data.main_objective} alone"]
    )


def reasons_against_language_pieces(data: DataConfig) -> list[str]:
    """Why a format that puts no language piece before the source cannot run the model; empty if it can."""
    if len(data.targets) > 1:
        return [f"data.train must have one target language, but has {len(data.targets)}"]
    if data.has_language_pieces:
        present = str(data.language_pieces).lower()
        return [f"data.language_pieces must be false, but is {present}; its parent has several languages"]
    return []


CONFIG, HELD_OUT, SEEN = "config", "held-out", "seen"
EXTRAS = {
    CONFIG: "the whole config.yaml, with the names of your files and folders",
    HELD_OUT: "the pairs that were held out of your training corpora, word for word",
    SEEN: "hashes of all sentences that the model was trained and scored on",
}
"""What is exported only on request."""

_FILE = re.compile(r"\.[a-z]\w*$")
_KEPT = ("source_lang", "target_lang", "tag", "reverse", "objective", "language")
"""Keys of a corpus that say what the model has learnt to do with it."""


def shared_files(run: RunFolder, extras: Collection[str]) -> list[Path]:
    """The files that an export for our commands has as the run has them: its vocabulary, the numbers that
    turn probabilities into confidence, and the extras.
    """
    files = [*tokenizer_files(run.path), run.calibration_file]
    files += [held_out_file(run.path, name) for name in ("valid", "test")] if HELD_OUT in extras else []
    files += [run.seen_file] if SEEN in extras else []
    return [file for file in files if file.exists()]


def shared_config(config: Config, extras: Collection[str]) -> Config:
    """The config of an export: how the model is built, reads and searches. Corpora that are not public are
    replaced by ones that say what was learnt from them, and settings of the training are left out.
    """
    if CONFIG in extras:
        return config
    data, keeps_held_out = config.data, HELD_OUT in extras

    def public(corpora: list[Any], stays: bool) -> list[AnySet]:
        named = [one if _may_stay(one, keeps_held_out) else _stands_for(one, config.name) for one in corpora]
        kept = [one for one in named if stays or not isinstance(one, ImportedCorpus)]
        return [one for number, one in enumerate(kept) if one not in kept[:number]]

    alignment = config.train.guided_alignment
    changes = {
        "train": public(data.entries, stays=True),
        "valid": public(data.valid_sets, stays=True),
        "test": public(list(data.test), stays=False),
        "preparation": type(data.preparation)(),
        "new_pieces": data.new_pieces.model_copy(update={"text": None}),
        "hub": None,
        "config": None,
        "changes": [],
        "filter": type(data.filter)(),
    }
    guided = GuidedAlignmentConfig(weight=alignment.weight, layer=alignment.layer)
    return without_parents_folders(config).model_copy(
        update={
            "data": data.model_copy(update=changes),
            "tokenizer": config.tokenizer.model_copy(update={"file": None}),
            "train": TrainConfig(guided_alignment=guided),
        }
    )


def _may_stay(corpus: AnySet, keeps_held_out: bool) -> bool:
    return corpus.is_public if isinstance(corpus, Corpus) else keeps_held_out


def _stands_for(corpus: AnySet, name: str) -> ImportedCorpus:
    keys = _KEPT if isinstance(corpus, Corpus) else ()
    return ImportedCorpus.model_validate({"imported": name, **{key: getattr(corpus, key) for key in keys}})


def without_parents_folders(config: Config) -> Config:
    """The config with the paths of its parents shortened to the names of their folders."""
    parent = config.init_from
    if isinstance(parent, str):
        return config.model_copy(update={"init_from": last_part(parent)})
    if parent is None:
        return config
    names = {key: name for key, name in parent if isinstance(name, str) and is_path(name)}
    kept = parent.model_copy(update={key: last_part(name) for key, name in names.items()})
    return config.model_copy(update={"init_from": kept})


def last_part(path: str) -> str:
    """The name of a file or folder without those that it is in."""
    return path.rstrip("/").rpartition("/")[2]


def is_path(text: str) -> bool:
    """True for the path of a file or folder, with or without other words after it."""
    if "/" not in text:
        return False
    words = text.split(" ")
    is_there = any(Path(" ".join(words[:count])).exists() for count in range(1, len(words) + 1))
    return is_there or text.startswith(("/", ".", "~")) or text.count("/") > 1 or bool(_FILE.search(text))
