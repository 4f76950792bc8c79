"""The log of a training, metrics.jsonl and the progress bar, and the time that is left."""

import os
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from transformer_mt.config import Config, TrainConfig
from transformer_mt.files import to_json, write_text
from transformer_mt.processes import OtherPrograms
from transformer_mt.progress_bar import duration, terminal, time_left
from transformer_mt.run.loggers import Loggers
from transformer_mt.run_folder import RunFolder

# The estimate is made after this many updates, or earlier if they have taken this many seconds.
_ENOUGH_UPDATES, _ENOUGH_SECONDS, _LEAST_UPDATES = 20, 60.0, 3
_DAY = 86_400.0


class TimeEstimate:
    """Seconds of updates and validations in this process."""

    def __init__(self) -> None:
        self._warm = False
        self._updates, self._seconds = 0, 0.0
        self._validation: float | None = None
        self._announced = False
        self._all_updates, self._all_seconds = 0, 0.0  # the first ones, too
        self.of_updates: float | None = None
        """The announced seconds of all updates of a training that began in this process."""
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
        self._validation = seconds

    def left(self, step: int, train: TrainConfig) -> float | None:
        """Seconds from `step` to the last update, validations counted once one was measured; None until
        enough is measured.
        """
        slow = self._seconds >= _ENOUGH_SECONDS and self._updates >= _LEAST_UPDATES
        if self._updates < _ENOUGH_UPDATES and not slow:
            return None
        updates = time_left(self._updates, self._updates + train.max_updates - step, self._seconds)
        # There is one after the last update, too.
        validations = -(-train.max_updates // train.validate_every) - step // train.validate_every
        return updates + max(0, validations) * (self._validation or 0.0)

    def announcement(self, step: int, train: TrainConfig, on_cpu: bool) -> list[str]:
        """The lines about the time, once; an empty list before enough is measured and after it was said."""
        left = self.left(step, train)
        if self._announced or left is None:
            return []
        self._announced = True
        per_update = self._seconds / self._updates
        if step == self._all_updates:
            self.of_updates = self._all_seconds + per_update * (train.max_updates - step)
        lines = [
            f"about {duration(left)} for {train.max_updates - step:,} more updates of {per_update:.2f} s"
            + ("" if self._validation else ", without the validations")
            + (self._others.note(left) if on_cpu and "WORLD_SIZE" not in os.environ else "")
        ]
        if on_cpu and left > _DAY:
            lines.append(
                "note: that is more than a day on this CPU; lower train.max_updates or model.d_model, take a "
                "smaller corpus (data.train), or train on a GPU"
            )
        return lines


class MetricsLog:
    """metrics.jsonl, one object per line, and the progress bar; ranks other than 0 write nothing."""

    def __init__(self, folder: RunFolder, active: bool = True, loggers: Sequence[str] = ()) -> None:
        self.folder = folder
        self._active = active
        self._bar: tqdm | None = None
        self._loggers = Loggers(loggers if active else ())

    def rewind(self, step: int) -> None:
        """Remove what was written after update `step`, and the end: a resumed run writes it again."""
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
