"""The models that a server has: those it was given, and those that come and go in a folder."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from weakref import WeakSet

from transformer_mt.errors import InputError, WorkError
from transformer_mt.messages import say
from transformer_mt.serving.batcher import Batcher
from transformer_mt.serving.directions import Directions
from transformer_mt.serving.model import Model
from transformer_mt.translation.translator import Translator

_LOG = logging.getLogger("transformer_mt.serving")
_SECONDS = 2.0
"""From one look at the folder to the next."""
# The files of a model: a folder in which one of them changed has another model.
_ENDINGS = {".yaml", ".yml", ".safetensors", ".bin", ".json", ".model", ".spm", ".npz", ".txt"}
_Stats = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Offer:
    """A direction that a model can be served in."""

    name: str
    """Of the model's folder."""
    direction: tuple[str, str]
    load: Callable[[], Translator]


@dataclass(frozen=True)
class _Folder:
    """A folder within the one that is watched."""

    stats: _Stats
    models: dict[tuple[str, str], Model]


class Models:
    """Keeps `directions` as the folder is, and models in memory that are used."""

    def __init__(
        self,
        given: Sequence[Offer],
        start: Callable[[Offer], Batcher],
        watched: Path | None = None,
        offers_of: Callable[[Path], Sequence[Offer]] = lambda folder: (),
        unload_after: float = 0.0,
    ) -> None:
        """`given` are always there. `start` loads an offer; `offers_of` has those of a folder within
        `watched`. A model that nobody asked for `unload_after` seconds is unloaded, and loaded when it is
        needed; 0 is never.
        """
        self._start, self._offers_of = start, offers_of
        self._watched, self._unload_after = watched, unload_after
        pairs = [offer.direction for offer in given]
        if twice := next((pair for pair in pairs if pairs.count(pair) > 1), None):
            raise InputError(
                f"each model must have a direction of its own, but two translate {twice[0]} to {twice[1]}"
            )
        self._given = {offer.direction: self._model(offer) for offer in given}
        self._folders: dict[Path, _Folder] = {}
        self._seen: dict[Path, _Stats] = {}
        self._gone: list[Model] = []
        self._failed: WeakSet[Model] = WeakSet()
        self._second: WeakSet[Model] = WeakSet()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, daemon=True)
        self.directions = Directions({})
        try:
            for model in [] if unload_after else self._given.values():
                model.load()
            self._update(is_first=True)
        except BaseException:
            for model in self._given.values():
                model.close()
            raise
        if watched or unload_after:
            self._thread.start()

    def _model(self, offer: Offer) -> Model:
        return Model(partial(self._start, offer), offer.name)

    def look(self) -> None:
        """Serve the models that are in the folder now, and unload those that nobody uses."""
        with suppress(OSError):  # a disk that is not there for a while: its models are in memory
            self._update()
        self._gone = [model for model in self._gone if not model.close()]
        if self._unload_after:
            for model in self.directions.models.values():
                model.unload(self._unload_after)

    def close(self) -> None:
        """Finish what waits, and unload all."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        for model in [*self.directions.models.values(), *self._gone]:
            model.close()

    def _keep_looking(self) -> None:
        while not self._end.wait(_SECONDS):
            try:
                self.look()
            except Exception as error:
                _LOG.error("the folder of models could not be looked at: %s", error)

    def _update(self, is_first: bool = False) -> None:
        """Read the folders that are new or changed, but none that still changes: it may be half a copy."""
        there: dict[Path, _Stats] = {}
        if self._watched is not None:
            there = {path: _stats_of(path) for path in sorted(self._watched.iterdir()) if path.is_dir()}
        folders: dict[Path, _Folder] = {}
        for path, stats in there.items():
            known = self._folders.get(path)
            is_quiet = is_first or self._seen.get(path) == stats
            if stats and is_quiet and (known is None or known.stats != stats):
                known = _Folder(stats, self._read(path, known.models if known else {}))
            if stats and known is not None:
                folders[path] = known
        self._folders, self._seen = folders, there
        self._publish(is_first)

    def _read(self, path: Path, before: dict[tuple[str, str], Model]) -> dict[tuple[str, str], Model]:
        """The models of a folder; those of `before` if it cannot be read."""
        try:
            return {offer.direction: self._model(offer) for offer in self._offers_of(path)}
        except Exception as error:
            _say_not_served(path.name, error)
            return before

    def _publish(self, is_first: bool) -> None:
        """One model for each direction: one that was given, else that of the first folder."""
        before, chosen = self.directions.models, dict(self._given)
        offered = [each for folder in self._folders.values() for each in folder.models.items()]
        for direction, model in offered:
            old = before.get(direction)
            if direction in chosen:
                if model not in self._second:
                    other = chosen[direction].name
                    say(f"note: {model.name}: not served, as {other} translates {' to '.join(direction)}")
                    self._second.add(model)
            elif self._is_ready(model):
                chosen[direction] = model
                self._second.discard(model)
            elif old is not None and old.name == model.name:
                chosen[direction] = old  # better than none
        self.directions.models = chosen
        self._gone += [model for direction, model in before.items() if chosen.get(direction) is not model]
        for direction in [] if is_first else dict.fromkeys([*before, *chosen]):
            _say_change(direction, before.get(direction), chosen.get(direction))

    def _is_ready(self, model: Model) -> bool:
        """Whether it is in memory, or need not be yet."""
        if self._unload_after:
            return True
        if model in self._failed:
            return False
        try:
            model.load()
        except Exception as error:
            self._failed.add(model)
            _say_not_served(model.name, error)
            return False
        return True


def _say_not_served(name: str, error: Exception) -> None:
    why = error if isinstance(error, (InputError, WorkError, OSError)) else type(error).__name__
    say(f"note: {name}: not served ({why})")


def _say_change(direction: tuple[str, str], before: Model | None, now: Model | None) -> None:
    source, target = direction
    if before is None and now is not None:
        say(f"{now.name}: translating {source} to {target}")
    elif now is None:
        say(f"translating {source} to {target} no longer")
    elif now is not before:
        say(f"{now.name}: translating {source} to {target} with another model")


def _stats_of(folder: Path) -> _Stats:
    """Names, sizes and times of the files of a model; none if a file went while we looked."""
    try:
        files = [path for path in (*folder.iterdir(), *folder.glob("model/*")) if path.suffix in _ENDINGS]
        return tuple(sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files))
    except OSError:
        return ()
