"""The output of a run: messages on stderr, a progress bar, metrics.jsonl, and the loggers of the config."""

from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from transformer_mt.config import Config
from transformer_mt.files import to_json, write_text
from transformer_mt.progress_bar import terminal
from transformer_mt.runs.folder import RunFolder
from transformer_mt.training.reporting.loggers import Loggers


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
