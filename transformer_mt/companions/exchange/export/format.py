"""The base of every form a model is exported to: what it supports, how it is written and run."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from transformer_mt.config import Config, DataConfig, DecodeConfig
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
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
    """What the user wants to give away besides what translation needs (shared_files.py)."""


@dataclass(frozen=True)
class Output:
    """The translation of a line by another runtime."""

    translation: str
    score: float
    """log P / length^a, as ours."""
    tokens: Sequence[str] = ()
    """Its pieces, where the runtime tells them."""


OURS_ALONE = {"lowercase_capitals": False, "protect_usual": False}
"""Settings of what our own translating does before and after the search, as other runtimes have them."""


def num_positions(config: Config) -> int:
    """Positions an exported model has: the runtimes keep a table of them, where ours has no end."""
    most = config.data.max_length
    return most if config.model.position == "learned" else max(2048, 3 * most)


class ExportFormat(Protocol):
    """A format that models are exported to."""

    name: str
    advice: str
    """The advice where a model cannot be exported."""
    quantization: str
    """How weights are stored: float32 or one of CTranslate2's others."""

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "ExportFormat":
        """The format with the options of the command. InputError for those that it does not have."""
        ...

    proof_settings: ClassVar[dict[str, Any]]
    """Settings of the search with which the proof is made; the others are the run's."""

    def supported_settings(self, settings: DecodeConfig) -> tuple[DecodeConfig, list[str]]:
        """(the settings, unsupported ones replaced by the value this format always has; the names of
        those).
        """
        ...

    def reasons_against(self, config: Config) -> list[str]:
        """Every reason why such a model cannot be exported, each a key with what it must be."""
        ...

    def write(self, run: TrainedRun, folder: Path) -> None:
        """Write the model into an empty folder."""
        ...

    def translate(self, folder: Path, sentences: Sequence[str]) -> Sequence[Output]:
        """Translate with the foreign runtime."""
        ...

    def expected(self, translation: Translation) -> Output | None:
        """The output that the runtime must have where ours is this; None if it divides or cuts the line
        elsewhere.
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
    """Why a format whose runtime translates cannot hold the model: it was trained on plain text alone."""
    return (
        [] if data.directions else [f"data.train must have translations, but has {data.main_objective} alone"]
    )


def reasons_against_language_pieces(data: DataConfig) -> list[str]:
    """Why a format cannot run the model that has no pieces before the source which ask for a language."""
    if len(data.targets) > 1:
        return [f"data.train must have one target language, but has {len(data.targets)}"]
    if data.has_language_pieces:
        present = str(data.language_pieces).lower()
        return [f"data.language_pieces must be false, but is {present}; its parent has several languages"]
    return []
