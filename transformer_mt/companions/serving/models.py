"""The models that a server has: those it was given, and those that come and go in a folder."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from transformer_mt.companions.serving.batcher import Batcher
from transformer_mt.companions.serving.directions import Directions
from transformer_mt.companions.serving.served_model import Model, NotLoadedError
from transformer_mt.errors import InputError, WorkError
from transformer_mt.messages import say
from transformer_mt.translation.planner import Direction
from transformer_mt.translator import Translator

_LOG = logging.getLogger("transformer_mt.companions.serving")
# The files of a model: a folder in which one of them changed has another model.
_ENDINGS = {".yaml", ".yml", ".safetensors", ".bin", ".json", ".model", ".spm", ".npz", ".txt"}
_Stats = tuple[tuple[str, int, int], ...]
"""Names, sizes and times of the files."""


@dataclass(frozen=True, eq=False)
class Offer:
    """A direction that a model can be served in, with the files it has now."""

    name: str
    """The name of the model's folder."""
    direction: Direction
    load: Callable[[], Translator]


@dataclass(frozen=True)
class _Folder:
    """The offers of a folder within the watched one, and the state of its files when they were read."""

    stats: _Stats
    offers: Sequence[Offer]


class Models:
    """Keeps `directions` as the folder is, and models in memory that are used."""

    def __init__(
        self,
        given: Sequence[Offer],
        start: Callable[[Offer], Batcher],
        watched: Path | None = None,
        offers_of: Callable[[Path], Sequence[Offer]] = lambda folder: (),
        unload_after: float = 0.0,
        look_every: float = 2.0,
    ) -> None:
        """`given` are always there. `start` loads an offer; `offers_of` has those of a folder within
        `watched`. A model that nobody asked for `unload_after` seconds is unloaded, and loaded when it is
        needed; 0 is never. The folder is looked at every `look_every` seconds.
        """
        self._start, self._offers_of = start, offers_of
        self._watched, self._unload_after, self._look_every = watched, unload_after, look_every
        pairs = [offer.direction for offer in given]
        if twice := next((pair for pair in pairs if pairs.count(pair) > 1), None):
            raise InputError(
                f"each model must have a direction of its own, but two translate {twice[0]} to {twice[1]}"
            )
        self._given = given
        self._folders: dict[Path, _Folder] = {}
        self._seen: dict[Path, _Stats] = {}
        self._offers: dict[Model, Offer] = {}
        """The offer of each model that is served."""
        self._gone: list[Model] = []
        self._failed: set[Offer] = set()
        self._second: set[Offer] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, daemon=True)
        self.directions = Directions({})
        try:
            self._update(is_first=True)
        except BaseException:
            self.close()
            raise
        if watched or unload_after:
            self._thread.start()

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
        for model in [*self._offers, *self._gone]:
            model.close()

    def _keep_looking(self) -> None:
        while not self._end.wait(self._look_every):
            try:
                self.look()
            except Exception as error:
                _LOG.error("the folder of models could not be read: %s", error)

    def _update(self, is_first: bool = False) -> None:
        """Read the folders that are new or changed, but none that still changes: it may be half a copy."""
        current: dict[Path, _Stats] = {}
        if self._watched is not None:
            current = {path: _stats_of(path) for path in sorted(self._watched.iterdir()) if path.is_dir()}
        folders: dict[Path, _Folder] = {}
        for path in sorted({*current, *self._folders}):
            stats, known = current.get(path, ()), self._folders.get(path)
            is_quiet = is_first or self._seen.get(path, ()) == stats
            if is_quiet and stats and (known is None or known.stats != stats):
                known = _Folder(stats, self._read(path, known.offers if known else ()))
            if known is not None and (stats or not is_quiet):
                folders[path] = known
        self._folders, self._seen = folders, current
        offers = [*self._given, *(offer for folder in folders.values() for offer in folder.offers)]
        self._failed &= set(offers)
        self._second &= set(offers)
        self._publish(offers, is_first)

    def _read(self, path: Path, before: Sequence[Offer]) -> Sequence[Offer]:
        """The offers of a folder; those of `before` if it cannot be read."""
        try:
            return self._offers_of(path)
        except Exception as error:
            _say_not_served(path.name, error)
            return before

    def _publish(self, offers: Sequence[Offer], is_first: bool) -> None:
        """One model for each direction: the first that can be had."""
        before = self.directions.models
        chosen: dict[Direction, Model] = {}
        for direction in dict.fromkeys(offer.direction for offer in offers):
            of_direction = [offer for offer in offers if offer.direction == direction]
            if (model := self._first_of(of_direction, before.get(direction))) is not None:
                chosen[direction] = model
        self.directions.models = chosen
        kept = set(chosen.values())
        self._gone += [model for model in before.values() if model not in kept]
        self._offers = {model: offer for model, offer in self._offers.items() if model in kept}
        for direction in [] if is_first else dict.fromkeys([*before, *chosen]):
            _say_change(direction, before.get(direction), chosen.get(direction))

    def _first_of(self, offers: Sequence[Offer], old: Model | None) -> Model | None:
        """The model of the first offer that can be loaded; the `old` one is better than none."""
        for offer in offers:
            model = old if old is not None and self._offers[old] is offer else self._new(offer, old)
            if model is not None:
                for other in offers[offers.index(offer) + 1 :]:
                    if other not in self._second:
                        self._second.add(other)
                        languages = " to ".join(offer.direction)
                        say(f"note: {other.name}: not served, as {offer.name} translates {languages}")
                return model
        return old

    def _new(self, offer: Offer, old: Model | None) -> Model | None:
        """The offer's model; None if it cannot be loaded. Where it would be loaded later, it is loaded now if
        it is to replace an `old` one.
        """
        if offer in self._failed:
            return None
        model = Model(partial(self._start, offer), offer.name)
        if not self._unload_after or old is not None:
            try:
                model.load()
            except NotLoadedError as error:
                assert isinstance(error.__cause__, Exception)
                if offer in self._given:
                    raise error.__cause__ from None
                self._failed.add(offer)
                _say_not_served(offer.name, error.__cause__)
                return None
        self._offers[model] = offer
        return model


def _say_not_served(name: str, error: Exception) -> None:
    why = error if isinstance(error, (InputError, WorkError, OSError)) else type(error).__name__
    say(f"note: {name}: not served ({why})")


def _say_change(direction: Direction, before: Model | None, now: Model | None) -> None:
    source, target = direction
    if before is None and now is not None:
        say(f"{now.name}: translating {source} to {target}")
    elif now is None:
        say(f"no longer translating {source} to {target}")
    elif now is not before:
        say(f"{now.name}: translating {source} to {target} with another model")


def _stats_of(folder: Path) -> _Stats:
    """Names, sizes and times of the files of a model, without those that go while we look; none where we may
    not look, as into lost+found.
    """
    stats = []
    try:
        paths = [*folder.iterdir(), *folder.glob("model/*")]
    except PermissionError:
        return ()
    for path in paths:
        with suppress(OSError):
            if path.suffix in _ENDINGS:
                stat = path.stat()
                stats.append((path.name, stat.st_size, stat.st_mtime_ns))
    return tuple(sorted(stats))
