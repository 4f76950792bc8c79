"""The models that a server has, and the languages that they translate from and to.

A model can be unloaded once it has not been used for some time. Models can be added to and removed from a
watched folder. A language is also known by other codes: `zh-CN` and `zh-Hans` if the server has `zh`.
"""

import asyncio
import gc
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from transformer_mt.companions.serving.batcher import Batcher
from transformer_mt.companions.serving.segment_queue import resident_bytes
from transformer_mt.errors import InputError, WorkError
from transformer_mt.messages import say
from transformer_mt.text.languages import LanguageIdentifier, base_code, is_same_language, language_name
from transformer_mt.translation.planner import Direction
from transformer_mt.translator import Translator

_OLD = {"zt": "zh_Hant", "pb": "pt_BR", "iw": "he", "in": "id", "ji": "yi"}
"""Codes of LibreTranslate's own, and those that ISO has withdrawn."""


def known_code(code: str, known: Iterable[str]) -> str:
    """The code in `known` for the language of `code`: `code` itself, else a code of the same language and
    script, preferably also of the same country. Returns `code` unchanged if there is none.
    """
    codes = list(dict.fromkeys(known))
    if code in codes or not code:
        return code
    wanted = _parts(_OLD.get(code.lower(), code))
    candidates = [(sum(part in wanted for part in _parts(other)), other) for other in codes]
    same = [(fits, other) for fits, other in candidates if _parts(other)[0] == wanted[0]]
    best = max(same, key=lambda one: one[0], default=(0, code))
    is_other_script = best[0] and len({_parts(best[1])[1], wanted[1]} - {""}) > 1
    return code if is_other_script else best[1]


def _parts(code: str) -> tuple[str, str, str]:
    """Language, script and country, the likeliest script where none is named."""
    from babel import Locale, UnknownLocaleError

    try:
        locale = Locale.parse(code.replace("-", "_"), resolve_likely_subtags=True)
    except (ValueError, UnknownLocaleError, TypeError):
        return base_code(code), "", ""
    return locale.language, locale.script or _likely_script(locale.language), locale.territory or ""


def _likely_script(language: str) -> str:
    from babel.core import get_global

    parts = get_global("likely_subtags").get(language, "").split("_")
    return str(parts[1]) if len(parts) > 1 else ""


# Below this probability a text of at least so many letters is taken to be in another language.
_UNLIKELY, _LETTERS = 0.05, 20


@dataclass(frozen=True)
class Detected:
    """A language a text seems to be in."""

    language: str
    confidence: float
    """0 to 100."""


_LOADER = ThreadPoolExecutor(1, thread_name_prefix="load")
"""The thread that loads models, one after the other: requests of other models need none of it."""
_PAUSE = 10.0
"""Seconds from a load that failed to the next try."""


class ModelGoneError(Exception):
    """The model is not served any more."""


class NotLoadedError(Exception):
    """The model could not be loaded."""


class Model:
    """A batcher that is started when a request needs it. Thread-safe."""

    def __init__(
        self, start: Callable[[], Batcher], name: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`start` loads the model, which people know by its `name`."""
        self.name = name
        self._start, self._clock = start, clock
        self._batcher: Batcher | None = None
        self._loading, self._state = threading.Lock(), threading.Lock()  # held long, and for an instant
        self._users, self._last_used, self._is_gone = 0, clock(), False
        self._grown, self._translated = 0, 0
        self._load: asyncio.Future[None] | None = None
        self._failure: NotLoadedError | None = None
        self._next_try = 0.0

    @asynccontextmanager
    async def loaded(self) -> AsyncIterator[Batcher]:
        """The batcher, which stays as long as it is used here. ModelGoneError after `close`; NotLoadedError
        if it cannot be loaded.
        """
        while (batcher := self._taken()) is None:
            if self._load is None or self._load.done():
                self._load = asyncio.get_running_loop().run_in_executor(_LOADER, self.load)
                # Otherwise Python warns about an error that was never retrieved
                self._load.add_done_callback(lambda load: load.exception())
            await asyncio.shield(self._load)  # others wait for it, too
        try:
            yield batcher
        finally:
            with self._state:
                self._users, self._last_used = self._users - 1, self._clock()

    def _taken(self) -> Batcher | None:
        with self._state:
            self._users += self._batcher is not None
            return self._batcher

    def load(self) -> None:
        """Load the model if it is not in memory. A failed load is retried only after `_PAUSE` seconds."""
        with self._loading:
            if self._is_gone:
                raise ModelGoneError
            if self._batcher is None:
                if self._failure is not None and self._clock() < self._next_try:
                    raise self._failure
                before = resident_bytes()
                try:
                    batcher = self._start()
                except Exception as error:
                    self._failure = NotLoadedError(f"{self.name}: {error}")
                    self._next_try = self._clock() + _PAUSE
                    raise self._failure from error
                # A later load may be given memory that an earlier one freed
                self._grown = max(self._grown, resident_bytes() - before)
                with self._state:
                    self._batcher, self._last_used = batcher, self._clock()

    def unload(self, after: float = 0.0) -> bool:
        """Free its memory if it was not used for `after` seconds. Returns True if it is not loaded now."""
        with self._loading:
            with self._state:
                if self._users or self._clock() - self._last_used < after:
                    return self._batcher is None
                batcher, self._batcher = self._batcher, None
            if batcher is not None:
                self._translated += batcher.translated
                batcher.close()
                del batcher
                gc.collect()  # in a thread of its own, where no request waits for it
        return True

    def close(self) -> bool:
        """Unload it for good once it is not used. Returns True if that is done."""
        self._is_gone = True
        return self.unload()

    @property
    def is_loaded(self) -> bool:
        return self._batcher is not None

    @property
    def lines(self) -> int:
        """Lines of requests that are not answered."""
        return batcher.lines if (batcher := self._batcher) else 0

    @property
    def translated(self) -> int:
        """Lines of requests that were answered."""
        return self._translated + (batcher.translated if (batcher := self._batcher) else 0)

    @property
    def memory(self) -> int | None:
        """Bytes by which this process grew when the model was loaded, plus the memory of the model's own
        processes. None while it is not loaded, 0 if the system does not report memory.
        """
        return self._grown + batcher.memory() if (batcher := self._batcher) else None


@dataclass(frozen=True)
class Chain:
    """The models that translate one after the other; none if the source is the target language."""

    models: tuple[Model, ...]
    pivot: str | None = None
    """The language between the first and the second model."""


class Directions:
    """A model for each pair of languages; languages have the codes of the models' configs."""

    def __init__(self, models: Mapping[Direction, Model]) -> None:
        self.models = models
        """The models by direction. The mapping is replaced when models come or go, but never changed."""
        self._identifier = LanguageIdentifier()

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys(source for source, _ in self.models))

    def targets_of(self, source: str) -> list[str]:
        """The languages that `source` can be translated to; those that need only one model come first."""
        targets = [target for known, target in self.models if known == source]
        targets += [target for pivot in targets for known, target in self.models if known == pivot]
        return [target for target in dict.fromkeys(targets) if target != source]

    def sources_of(self, target: str) -> list[str]:
        """The languages that are translated to one."""
        return [source for source in self.sources if target in self.targets_of(source)]

    def known(self, source: str, target: str) -> tuple[str, str]:
        """A source, or `auto`, and a target by the codes that the models have."""
        targets = [known for _, known in self.models]
        source = source if source == "auto" else known_code(source, [*self.sources, *targets])
        return source, known_code(target, [*targets, *self.sources])

    def languages(self) -> list[dict[str, Any]]:
        """Each language with its name and the languages it is translated to, as the API lists them."""
        codes = dict.fromkeys(code for pair in self.models for code in pair)
        return [
            {"code": code, "name": language_name(code), "targets": self.targets_of(code)} for code in codes
        ]

    def detect(self, text: str, among: Sequence[str] | None = None) -> list[Detected]:
        """The languages the server knows, the likeliest first."""
        codes = list(dict.fromkeys(among or [code for pair in self.models for code in pair]))
        probabilities = self._identifier.probabilities(text)
        guesses = [
            Detected(
                code,
                round(
                    100
                    * max(
                        (p for lang, p in probabilities.items() if is_same_language(code, lang)), default=0.0
                    ),
                    1,
                ),
            )
            for code in codes
        ]
        return sorted(guesses, key=lambda guess: -guess.confidence)

    def other_language(self, text: str, among: Sequence[str]) -> str | None:
        """The language of a text that is clearly in none of `among`; None if it may be in one or is short."""
        if sum(map(str.isalpha, text)) < (_LETTERS if text.isascii() else _LETTERS // 2):
            return None
        probabilities = self._identifier.probabilities(text)
        wanted = sum(p for lang, p in probabilities.items() if any(is_same_language(c, lang) for c in among))
        return max(probabilities, key=probabilities.__getitem__) if wanted < _UNLIKELY else None

    def chain(self, source: str, target: str) -> Chain:
        """The model of this direction; if there is none, two models by way of a third language: English if
        possible, else the first that works. InputError if there are none.
        """
        models = self.models  # a watched folder may change them meanwhile
        if source == target and any(source in pair for pair in models):
            return Chain(())
        if (source, target) in models:
            return Chain((models[source, target],))
        between = [code for known, code in models if known == source and (code, target) in models]
        if between:
            pivot = min(between, key=lambda code: base_code(code) != "en")
            return Chain((models[source, pivot], models[pivot, target]), pivot)
        if source not in self.sources:
            all_targets = list(dict.fromkeys(target for _, target in models))
            if target not in all_targets:  # so `auto` found no source either
                raise InputError(f"target must be one of {', '.join(all_targets)}, but is {target}")
            raise InputError(f"source must be auto or one of {', '.join(self.sources)}, but is {source}")
        targets = self.targets_of(source)
        raise InputError(f"target must be one of {', '.join(targets)} with source {source}, but is {target}")


_LOG = logging.getLogger("transformer_mt.companions.serving")
# The endings of a model's files. If one of these files changes, the folder has another model.
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
    """Keeps `directions` up to date with the watched folder, and unloads models that are not used."""

    def __init__(
        self,
        given: Sequence[Offer],
        start: Callable[[Offer], Batcher],
        watched: Path | None = None,
        offers_of: Callable[[Path], Sequence[Offer]] = lambda folder: (),
        unload_after: float = 0.0,
        look_every: float = 2.0,
    ) -> None:
        """`given` are always served. `start` loads an offer. `offers_of` returns the offers of a folder in
        `watched`, which is checked every `look_every` seconds. After `unload_after` seconds without a
        request, a model is unloaded until a request needs it; 0 is never.
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
        """Serve one model for each direction: the first that can be loaded."""
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
        """The offer's model; None if it cannot be loaded. With `unload_after` it is loaded only when a
        request needs it, unless it replaces an `old` model: then it is loaded now.
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
    """Names, sizes and times of a model's files. Files that disappear meanwhile are left out; a folder that
    cannot be read, such as lost+found, has none.
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
