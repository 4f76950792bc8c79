"""The records of metrics.jsonl, shown elsewhere too: TensorBoard, Weights & Biases."""

import importlib.util
import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_mt.config import Config
from transformer_mt.config.build_part import part_settings
from transformer_mt.errors import InputError
from transformer_mt.messages import say
from transformer_mt.parts import is_ours, load_part

Entry = dict[str, Any]
"""An object of metrics.jsonl."""

_TIMEOUT = 60.0  # seconds for Weights & Biases to answer, at the start and at the end


def check_loggers(names: Sequence[str]) -> None:
    """InputError if the package of a logger is not installed."""
    for name in names:
        package = load_part("logger", name).package if is_ours("logger", name) else None
        if package is not None and importlib.util.find_spec(package) is None:
            raise InputError(f"train.loggers: {name} needs its package: pip install 'transformer-mt[{name}]'")


class Loggers:
    """All loggers of a run. One that fails is left out from then on: the training continues."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._open: dict[str, Logger] = {}

    def begin(self, folder: Path, config: Config, step: int) -> None:
        """Start or continue the logs after update `step`."""
        for name in self._names:
            try:
                kind = load_part("logger", name)
                settings = part_settings(kind, name, "train.loggers")
                self._open[name] = kind(folder, config, step, **settings)
            except Exception as error:  # whatever their packages raise: no key, no network, no disk
                self._warn(name, error)

    def write(self, entry: Entry) -> None:
        for name, logger in list(self._open.items()):
            try:
                logger.write(entry)
            except Exception as error:
                self._warn(name, error)
                del self._open[name]

    def close(self) -> None:
        for name, logger in self._open.items():
            try:
                logger.close()
            except Exception as error:
                self._warn(name, error)
        self._open = {}

    def _warn(self, name: str, error: Exception) -> None:
        text = (str(error) or type(error).__name__).split("\n")[0]
        say(f"warning: {name} stopped recording: {text}")


class Logger(ABC):
    """A service that shows the log."""

    package: str | None = None
    """The package that it needs, which the extra of the logger's name installs."""

    @abstractmethod
    def __init__(self, folder: Path, config: Config, step: int) -> None: ...

    @abstractmethod
    def write(self, entry: Entry) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


def scalars(entry: Entry) -> dict[str, float]:
    """The numbers of an entry by name, such as train/loss or valid/BLEU."""
    event, values = entry["event"], {}
    if event == "train":
        names = ("loss", "ppl", "learning_rate", "grad_norm", "tokens_per_second", "memory_mb", "epoch")
        values = {f"train/{name}": entry[name] for name in names if name in entry}
        for name in ("grad_norm", "change"):
            of_layers = entry.get(f"{name}_by_layer", {})
            values |= {f"{name}/{layer}": value for layer, value in of_layers.items()}
    elif event in ("valid", "average"):
        values = _validation_scalars(event, entry)
        for scores in entry.get("sets", []):
            values |= _validation_scalars(f"{event}/{scores['name']}", scores)
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _validation_scalars(prefix: str, scores: Entry) -> dict[str, float]:
    metrics = {f"{prefix}/{score['name']}": score["value"] for score in scores["scores"]}
    return {f"{prefix}/loss": scores["loss"], **metrics}


class TensorBoard(Logger):
    """Files in the run's folder, for `tensorboard --logdir`."""

    package = "tensorboard"

    def __init__(self, folder: Path, config: Config, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What an interrupted training wrote after its last checkpoint is shown no more.
        self._writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, entry: Entry) -> None:
        for name, value in scalars(entry).items():
            self._writer.add_scalar(name, value, entry["step"])
        if samples := entry.get("samples"):
            lines = (f"- {src}\n    - {reference}\n    - **{got}**" for src, reference, got in samples)
            self._writer.add_text("samples", "\n".join(lines), entry["step"])
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases(Logger):
    """wandb.ai, or with WANDB_MODE=offline a folder to synchronise later."""

    package = "wandb"

    def __init__(self, folder: Path, config: Config, step: int) -> None:
        import wandb

        # The same one when the run is resumed
        file = folder / "wandb.id"
        if not file.exists():
            file.write_text(secrets.token_hex(4), encoding="utf-8")
        settings = wandb.Settings(
            init_timeout=_TIMEOUT, finish_timeout=_TIMEOUT, console="off", silent=True, disable_git=True,
            disable_code=True,
        )  # fmt: skip
        self._wandb = wandb
        self._run: Any = wandb.init(
            project="transformer-mt", name=config.name, id=file.read_text(encoding="utf-8"), resume="allow",
            dir=str(folder), config=config.model_dump(mode="json"), settings=settings,
        )  # fmt: skip
        # A resumed training repeats updates, which wandb's own counter of steps forbids.
        self._run.define_metric("update")
        self._run.define_metric("*", step_metric="update")

    def write(self, entry: Entry) -> None:
        facts: dict[str, Any] = scalars(entry)
        if samples := entry.get("samples"):
            columns = ["source", "reference", "translation"]
            facts["samples"] = self._wandb.Table(columns=columns, data=[list(row) for row in samples])
        if facts:
            self._run.log({"update": entry["step"], **facts})

    def close(self) -> None:
        self._run.finish()
