"""Where the numbers of a training go: metrics.jsonl, the progress bar, TensorBoard, Weights & Biases; and the
estimate of the time that is left. What the lines and the bar say is made in log.py.
"""

import importlib.util
import math
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from transformer_mt.config import Config, TrainConfig
from transformer_mt.config.build_part import part_settings
from transformer_mt.errors import InputError
from transformer_mt.files import to_json, write_text
from transformer_mt.messages import duration, say, terminal, time_left
from transformer_mt.parts import is_ours, load_part
from transformer_mt.processes import OtherPrograms
from transformer_mt.run_folder import RunFolder

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
    """All loggers of a run. If a logger fails, it is dropped and the training continues without it."""

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

        # Hide what an interrupted training wrote after its last checkpoint.
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

        # Reuse the id when the run is resumed.
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


# The estimate is made after _ENOUGH_UPDATES, or after _LEAST_UPDATES if they took _ENOUGH_SECONDS.
_ENOUGH_UPDATES, _ENOUGH_SECONDS, _LEAST_UPDATES = 20, 60.0, 3
_DAY = 86_400.0


class TimeEstimate:
    """Estimates the time left, from the updates and validations of this process."""

    def __init__(self) -> None:
        self._warm = False
        self._updates, self._seconds = 0, 0.0
        self._validation_seconds: float | None = None
        self._announced = False
        self._all_updates, self._all_seconds = 0, 0.0  # the first ones, too
        self.estimated_seconds: float | None = None
        """Estimated seconds of all updates; None until they are announced, and after a resume."""
        self._others = OtherPrograms()

    def updated(self, updates: int, seconds: float) -> None:
        """Add the time of some updates. The first ones are left out: they compile and fill caches."""
        self._all_updates += updates
        self._all_seconds += seconds
        if self._warm:
            self._updates += updates
            self._seconds += seconds
        self._warm = True

    def validated(self, seconds: float) -> None:
        """Keep the time of the newest validation."""
        self._validation_seconds = seconds

    def left(self, step: int, train: TrainConfig) -> float | None:
        """Seconds from `step` to the end of the training; None until enough updates are measured. Validations
        are included once one has been measured.
        """
        slow = self._seconds >= _ENOUGH_SECONDS and self._updates >= _LEAST_UPDATES
        if self._updates < _ENOUGH_UPDATES and not slow:
            return None
        updates = time_left(self._updates, self._updates + train.max_updates - step, self._seconds)
        # There is one after the last update, too.
        validations = -(-train.max_updates // train.validate_every) - step // train.validate_every
        return updates + max(0, validations) * (self._validation_seconds or 0.0)

    def announcement(self, step: int, train: TrainConfig, on_cpu: bool) -> list[str]:
        """The lines about the time left, once; empty before enough is measured and on later calls."""
        left = self.left(step, train)
        if self._announced or left is None:
            return []
        self._announced = True
        per_update = self._seconds / self._updates
        if step == self._all_updates:
            self.estimated_seconds = self._all_seconds + per_update * (train.max_updates - step)
        lines = [
            f"about {duration(left)} for {train.max_updates - step:,} more updates of {per_update:.2f} s"
            + ("" if self._validation_seconds else ", without the validations")
            + (self._others.note(left) if on_cpu and "WORLD_SIZE" not in os.environ else "")
        ]
        if on_cpu and left > _DAY:
            lines.append(
                "note: that is more than a day on this CPU; lower train.max_updates or model.d_model, take a "
                "smaller corpus (data.train), or train on a GPU"
            )
        return lines


_RAPL = Path("/sys/class/powercap")
# RAPL's counters start again after some tens of minutes, so they are read at least this often.
_SECONDS_BETWEEN_READINGS = 60.0


class EnergyMeter:
    """Measures the energy that this machine uses from now on, including the work of other programs. It reads
    the energy counters of CPUs (RAPL, which most systems let only root read) and of NVIDIA GPUs (NVML).
    """

    def __init__(self, folder: Path = _RAPL) -> None:
        packages = [path for path in folder.glob("*-rapl:*") if path.name.count(":") == 1]  # not their parts
        self._files = [(path / "energy_uj", _number_in(path / "max_energy_range_uj")) for path in packages]
        self._last_readings = [_number_in(file) for file, _ in self._files]
        self._last_time = time.monotonic()
        self._cpu_joules = 0.0
        self._gpu_counters = _gpu_counters()
        self._gpu_start = [read() for read in self._gpu_counters]

    def update(self) -> None:
        """Read the CPUs' counters if the last reading is old. Training calls this after each update, so it
        must cost nearly nothing.
        """
        if time.monotonic() - self._last_time >= _SECONDS_BETWEEN_READINGS:
            self._read()

    def joules(self) -> float | None:
        """The energy so far; None if no counter can be read."""
        self._read()
        if not self._gpu_counters and all(reading is None for reading in self._last_readings):
            return None
        gpu_joules = sum(read() - start for read, start in zip(self._gpu_counters, self._gpu_start)) / 1e3
        return self._cpu_joules + gpu_joules

    def _read(self) -> None:
        self._last_time = time.monotonic()
        for i, (file, size) in enumerate(self._files):
            now, last = _number_in(file), self._last_readings[i]
            if now is not None and last is not None:
                self._cpu_joules += (now - last + (0.0 if now >= last else size or 0.0)) / 1e6
            self._last_readings[i] = now


def _number_in(file: Path) -> float | None:
    try:
        return float(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _gpu_counters() -> list[Callable[[], float]]:
    """Functions that read the millijoules of each NVIDIA GPU; empty without nvidia-ml-py or a driver."""
    try:
        import pynvml  # type: ignore[import-not-found]

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        counters: list[Callable[[], float]] = [
            partial(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle) for handle in handles
        ]
        for read in counters:
            read()  # old GPUs have no counter
        return counters
    except Exception:  # every problem of NVML means the same: nothing is known
        return []


class MetricsLog:
    """metrics.jsonl, one object per line, and the progress bar; ranks other than 0 write nothing."""

    def __init__(self, folder: RunFolder, active: bool = True, loggers: Sequence[str] = ()) -> None:
        self.folder = folder
        self._active = active
        self._bar: tqdm | None = None
        self._loggers = Loggers(loggers if active else ())

    def rewind(self, step: int) -> None:
        """Remove entries after update `step`, and those of the average and the end: a resumed run writes them
        again.
        """
        if not self._active:
            return
        entries = [
            entry
            for entry in self.folder.entries()
            if entry["step"] <= step and entry["event"] not in ("average", "end")
        ]
        lines = (to_json(entry, ensure_ascii=False) + "\n" for entry in entries)
        write_text(self.folder.metrics_file, "".join(lines))

    def begin(self, config: Config, step: int) -> None:
        """Forget what was written after update `step`, and start the loggers."""
        self.rewind(step)
        self._loggers.begin(self.folder.path, config, step)

    def write(self, event: str, **facts: Any) -> None:
        """Add one object."""
        if not self._active:
            return
        entry = {"event": event} | {key: _rounded(value) for key, value in facts.items()}
        with self.folder.metrics_file.open("a", encoding="utf-8") as file:
            file.write(to_json(entry, ensure_ascii=False) + "\n")
        self._loggers.write(entry)

    def open_bar(self, step: int, total: int) -> None:
        # No bar in a log file: the messages are enough there.
        self._bar = tqdm(
            total=total,
            initial=step,
            unit="update",
            bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]",
            **terminal(self._active),
        )

    def advance(self, step: int, facts: str) -> None:
        """Set the bar to update `step`, followed by the newest numbers."""
        if self._bar is not None:
            self._bar.set_postfix_str(facts, refresh=False)
            self._bar.update(step - self._bar.n)

    def close_bar(self) -> None:
        """End the progress bar; what follows is only written."""
        if self._bar is not None:
            self._bar.close()

    def close(self) -> None:
        """End the progress bar and the loggers."""
        self.close_bar()
        self._loggers.close()


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return float(f"{value:.7g}") if isinstance(value, float) else value
