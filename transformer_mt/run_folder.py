"""The folder of a run, or of an exported model: its files, how each is read, how a MODEL is opened."""

import json
import math
import os
import shlex
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt.companion import hooks
from transformer_mt.config import Config
from transformer_mt.config.load import load_config_of_run
from transformer_mt.data.vocabulary.tokenizer import Tokenizer, tokenizer_files
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import digest, read_objects

if TYPE_CHECKING:
    from torch import Tensor

    from transformer_mt.checkpoint import Checkpoint
    from transformer_mt.corpora.seen_sentences import SeenSentences

_SCORES = ".scores.json"
_SHOWN = 10  # runs that an error lists


class RunFolder:
    """A folder in which a model is trained, or an export for CTranslate2, which holds what translation needs.

    Nothing is read before it is asked for, and torch is imported only for weights and checkpoints.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path = Path(path)
        self.config_file = path / "config.yaml"
        self.weights_file = path / "model.safetensors"  # from the first validation on
        self.exported_file = path / "model.bin"  # the weights of an export
        self.export_facts_file = path / "export.json"  # what an export was made of; written last
        self.calibration_file = path / "calibration.json"  # turns probabilities into confidence
        self.checkpoints = path / "checkpoints"
        self.frozen_file = path / "frozen.safetensors"  # weights that are not trained, for resuming
        self.averaging = path / "averaging"  # weights of the checkpoints that are averaged at the end
        self.metrics_file = path / "metrics.jsonl"
        self.report_file = path / "report.md"
        self.learning_curve_file = path / "learning_curve.png"
        self.reliability_file = path / "reliability.png"  # confidence against quality
        self.corpora_file = path / "data.json"  # what became of the pairs of each training corpus
        self.parent_file = path / "parent.json"  # what a fine-tuned run began from
        self.imported_file = path / "imported.json"  # which public model it was
        self.papers = path / "imported"  # the card and the licence of that model
        self.seen_file = path / "seen.safetensors"  # hashes of the sentences it was trained and scored on
        self.finished_file = path / "finished.json"  # written when the model is averaged and published
        self.export_folder = path / "ctranslate2"  # the same model for CTranslate2, made when it is published
        self.evaluation = path / "evaluation"  # translations and scores of test sets

    def __str__(self) -> str:
        return str(self.path)

    def translations_file(self, name: str) -> Path:
        """The translations of the test set of this name: `test-0`."""
        return self.evaluation / f"{name}.jsonl"

    def scores_file(self, name: str) -> Path:
        """The scores of the test set of this name."""
        return self.evaluation / f"{name}{_SCORES}"

    def scores_files(self) -> list[Path]:
        """The scores of all test sets."""
        return sorted(self.evaluation.glob(f"*{_SCORES}"))

    @staticmethod
    def set_of(scores_file: Path) -> str:
        """The name of the test set that a file of scores belongs to."""
        return scores_file.name.removesuffix(_SCORES)

    @property
    def is_export(self) -> bool:
        """True if the folder is an export for CTranslate2."""
        return self.exported_file.exists()

    @property
    def is_run(self) -> bool:
        """True if a training has begun in the folder."""
        return any(path.exists() for path in (self.config_file, self.metrics_file, self.checkpoints))

    @property
    def is_finished(self) -> bool:
        return self.finished_file.exists() and self.weights_file.exists()

    @property
    def model_file(self) -> Path | None:
        """The weights of a run or an export; None without any."""
        return next((file for file in (self.weights_file, self.exported_file) if file.exists()), None)

    @property
    def translation_files(self) -> list[Path]:
        """The files that translations depend on."""
        files = [self.weights_file, self.exported_file, self.config_file, *tokenizer_files(self.path)]
        return [file for file in files if file.exists()]

    def config(self, decode: dict[str, Any] | None = None) -> Config:
        """The config, with the given settings of `decode` changed. InputError if there is none."""
        if self.path.is_file() and self.path.suffix in (".yaml", ".yml"):
            raise InputError(
                f"{self}: must be a run's folder, but is a config; its training makes the folder "
                f"runs/{self.path.stem}"
            )
        if not self.path.is_dir():
            runs = sorted(str(file.parent) for file in Path("runs").glob("*/config.yaml"))
            near = [f"did you mean {run}?" for run in runs if Path(run).name == self.path.name]
            more = f" and {len(runs) - _SHOWN} more" if len(runs) > _SHOWN else ""
            hint = (
                f"the runs here: {', '.join(runs[:_SHOWN])}{more}"
                if runs
                else "`transformer-mt train demo` makes one"
            )
            raise InputError(f"{self}: no such folder; a model is the folder of a run; {(near or [hint])[0]}")
        if not self.config_file.exists():
            inside = sorted(str(file.parent) for file in self.path.glob("*/config.yaml"))
            hint = f"; the runs in it: {', '.join(inside[:_SHOWN])}" if inside else ""
            raise InputError(f"{self}: must be a run's folder, but holds no {self.config_file.name}{hint}")
        settings = {f"decode.{key}": value for key, value in (decode or {}).items()}
        return load_config_of_run(self.config_file, settings)

    def tokenizer(self) -> Tokenizer:
        """The vocabulary. InputError if there is none."""
        return Tokenizer.load(self.path)

    def check_weights(self) -> None:
        """InputError if the folder is an export, or a run that has no weights yet."""
        if self.is_export:
            raise InputError(f"{self}: must be a run's folder, but is an export; name the run it came from")
        if not self.weights_file.exists():
            raise InputError(
                f"{self}: no {self.weights_file.name} yet; training writes it at its first validation"
            )

    def weights(self) -> "dict[str, Tensor]":
        """The weights of a run by their names, on the CPU. InputError if there are none, WorkError if they
        are damaged.
        """
        from transformer_mt.checkpoint import CheckpointError, load_weights

        self.check_weights()
        try:
            return load_weights(self.weights_file)
        except CheckpointError as error:
            raise WorkError(f"{error}; copy the run's folder again, or resume the training") from None

    def weights_digest(self) -> str | None:
        """A digest of the weights of a run or an export; None without any."""
        if (file := self.model_file) is None:
            return None
        stat = file.stat()
        return _digest(file.resolve(), stat.st_size, (stat.st_mtime_ns, stat.st_ctime_ns))

    @property
    def own_export(self) -> "RunFolder | None":
        """The export in the run's folder; None if there is none or it was made from other weights."""
        export = RunFolder(self.export_folder)
        facts = facts_of(export.export_facts_file)
        is_same = export.is_export and facts.get("weights") == self.weights_digest()
        return export if is_same else None

    def entries(self) -> list[dict[str, Any]]:
        """The objects of metrics.jsonl; empty before a training. A last line that a crash cut off is skipped.
        Numbers that were not finite are null in the file; they are returned as NaN.
        """
        objects = read_objects(self.metrics_file) if self.metrics_file.exists() else []
        return [_with_nan(entry) for entry in objects]

    def corpora(self) -> list[dict[str, Any]]:
        """Kept and dropped pairs of each training corpus; empty before the data are prepared."""
        file = self.corpora_file
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else []

    def calibration(self) -> dict[str, Any]:
        """The facts of calibration.json; empty where the model has none or the file is damaged."""
        return facts_of(self.calibration_file)

    def weights_of_parent(self) -> str | None:
        """The digest of the weights that a fine-tuned run began from; None where it is not known."""
        weights = facts_of(self.parent_file).get("weights")
        return None if weights is None else str(weights)

    def public_model(self) -> dict[str, Any]:
        """The facts of the public model that the run is, or that it began from; empty where there is none."""
        return facts_of(self.imported_file) or dict(facts_of(self.parent_file).get("imported") or {})

    def seen(self) -> "SeenSentences | None":
        """The record of the sentences that the model has seen; None where there is none."""
        from transformer_mt.corpora.seen_sentences import SeenSentences

        return SeenSentences.read(self.seen_file)

    def newest_checkpoint_step(self) -> int:
        """The update of the newest checkpoint according to the folder's name; 0 if there is no checkpoint."""
        names = [path.name.removeprefix("step-") for path in self.checkpoints.glob("step-*")]
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def newest_checkpoint(self) -> "Checkpoint | None":
        """The newest undamaged checkpoint; damaged ones are reported and set aside."""
        from transformer_mt import checkpoint

        return checkpoint.newest(self.checkpoints)


_NUMBERS = {"loss", "ppl", "grad_norm", "value", "grad_norm_by_layer", "change_by_layer"}


def _with_nan(value: Any, is_number: bool = False) -> Any:
    """The value with NaN for each missing one of _NUMBERS."""
    if isinstance(value, dict):
        return {key: _with_nan(item, is_number or key in _NUMBERS) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_nan(item, is_number) for item in value]
    return math.nan if value is None and is_number else value


def facts_of(file: Path) -> dict[str, Any]:
    """The JSON object in a file; nothing where it is missing or damaged."""
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def origin_of(file: Path) -> Path:
    """File in which a command that makes a corpus records its sources."""
    return file.with_name(f"{file.name}.origin.json")


def makers_of(file: Path) -> list[RunFolder]:
    """The models that wrote a side of a corpus, as far as they are recorded next to it."""
    return [RunFolder(file.parent / path) for path in facts_of(origin_of(file)).get("folders", [])]


@lru_cache(maxsize=64)
def _digest(file: Path, size: int, changed: tuple[int, int]) -> str:
    return digest(file)


def check_translates(config: Config, folder: str | Path) -> None:
    """InputError if the model in this folder was trained on plain text alone."""
    if not config.data.directions:
        raise InputError(
            f"{folder}: must be a model that translates, but was trained for "
            f"{' and '.join(config.data.objectives)}; try: {usage_of(config, str(folder))}"
        )


def usage_of(config: Config, folder: str) -> str:
    """A command, or what to write into a config, for the model in this folder."""
    folder = shlex.quote(folder)
    if config.data.directions:
        return f'translate {folder} "..."'
    if config.data.trains_labels:
        return f'transformer-mt classify {folder} "..."'
    if config.model.kind == "encoder":
        return f'transformer-mt fill {folder} "... [MASK] ..."'
    if config.model.kind == "decoder":
        return f'transformer-mt complete {folder} "..."'
    return f"`init_from: {folder}` in the config of a translation"


Languages = tuple[str | None, str | None]
"""The source and target language of a model that names none."""


class UnknownLanguageError(InputError):
    """Neither the model nor the user says its languages."""


def open_model(model: str | Path, source: str | None = None, target: str | None = None) -> RunFolder:
    """The run or the export in a folder. A companion imports a model of other software; `source` and `target`
    are its languages if it names none itself.
    """
    return _opened(str(model), (source, target), None) or RunFolder(model)


def parent_of(config: Config) -> RunFolder:
    """The run that the training of a config with `init_from` begins from. InputError if nothing opens it."""
    parent = config.init_from
    assert parent is not None
    if run := _opened(parent, (config.data.source_lang, config.data.target_lang), config):
        return run
    if isinstance(parent, str):
        return RunFolder(parent)
    raise InputError(
        f"`init_from` must be the folder of a run, but is {parent}, and no installed companion opens it"
    )


def _opened(model: Any, languages: Languages, config: Config | None) -> RunFolder | None:
    if isinstance(model, str) and RunFolder(model).config_file.exists():
        return RunFolder(model)
    runs = (open_kind(model, languages, config) for open_kind in hooks("open_model"))
    return next((run for run in runs if run is not None), None)


def after_training(folder: str | Path, is_asked: bool = False) -> None:
    """Run the companions' `after_training` hooks, on rank 0 alone. `is_asked` tells them that a command needs
    their result.
    """
    if os.environ.get("RANK", "0") == "0":
        for work in hooks("after_training"):
            work(RunFolder(folder), is_asked)
