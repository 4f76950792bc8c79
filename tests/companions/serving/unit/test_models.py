"""Models that come and go while a server runs, and that are in memory only while they are used."""

import asyncio
import mmap
import os
import time
from pathlib import Path

import pytest

pytest.importorskip("starlette")

from starlette.testclient import TestClient

from tests.helpers.faults import memory_of_models_unknown
from tests.helpers.upper_case import upper_case_translator
from transformer_mt.companions.serving.batcher import Batcher
from transformer_mt.companions.serving.http.limits import ApiKeys, Limits
from transformer_mt.companions.serving.http.server import build_app
from transformer_mt.companions.serving.models import Model, ModelGoneError, Models, NotLoadedError, Offer
from transformer_mt.errors import InputError


class Starts:
    """Starts batchers, and notes which."""

    def __init__(self):
        self.started = []
        self.fails = set()

    def __call__(self, offer):
        if offer.name in self.fails:
            raise InputError(f"{offer.name} is damaged")
        self.started.append(offer.name)
        return Batcher(upper_case_translator(), wait=0.0)


def offers_of(folder):
    """The offer of a folder whose config names two languages."""
    words = (folder / "config.yaml").read_text().split()
    if len(words) != 2:
        raise InputError("config.yaml must name two languages")
    return [Offer(folder.name, tuple(words), upper_case_translator)]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "models"


def put(folder, name, languages):
    """A model's folder as a copy makes it."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "config.yaml").write_text(languages)


def pairs(models):
    return [" ".join(pair) for pair in models.directions.models]


@pytest.fixture
def watching(folder, monkeypatch):
    """Models of the folder; it is looked at only when a test says so."""
    memory_of_models_unknown(monkeypatch)
    folder.mkdir(exist_ok=True)
    made = []

    def watch(given=(), start=None, **options):
        made.append(Models(given, start or Starts(), folder, offers_of, look_every=1e6, **options))
        return made[-1]

    yield watch
    for models in made:
        models.close()


def look_thrice(models):
    for _ in range(3):
        models.look()


def test_a_folder_that_may_not_be_read_is_no_model(watching, folder, monkeypatch):
    """Folders such as lost+found are at the root of a disk."""
    put(folder, "a", "en de")
    put(folder, "lost+found", "de en")
    original = Path.iterdir

    def refused(path):
        if path.name == "lost+found":
            raise PermissionError(13, "Permission denied", str(path))
        return original(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    assert pairs(watching()) == ["en de"]


def test_models_of_a_folder_come_change_and_go(watching, folder, capsys):
    put(folder, "a", "en de")
    start = Starts()
    models = watching(start=start)
    assert pairs(models) == ["en de"] and start.started == ["a"]
    put(folder, "b", "de en")
    models.look()
    assert pairs(models) == ["en de"]  # it may be half a copy
    models.look()
    assert pairs(models) == ["en de", "de en"] and start.started == ["a", "b"]
    first = models.directions.models["en", "de"]
    put(folder, "a", "en  de")  # another file, of the same languages
    models.look()
    assert models.directions.models["en", "de"] is first
    models.look()
    second = models.directions.models["en", "de"]
    assert second is not first and second.is_loaded
    models.look()
    assert not first.is_loaded
    (folder / "b" / "config.yaml").unlink()
    models.look()
    models.look()
    assert pairs(models) == ["en de"]
    assert capsys.readouterr().err.splitlines() == [
        "b: translating de to en",
        "a: translating en to de with another model",
        "no longer translating de to en",
    ]


@pytest.mark.parametrize("unload_after", [0, 60])  # which would be loaded later
def test_a_model_that_cannot_be_loaded_does_not_replace_one_that_can(watching, folder, unload_after, capsys):
    put(folder, "a", "en de")
    start = Starts()
    models = watching(start=start, unload_after=unload_after)
    first = models.directions.models["en", "de"]
    start.fails.add("a")
    put(folder, "a", "en  de")
    look_thrice(models)
    assert models.directions.models["en", "de"] is first and first.is_loaded == (not unload_after)
    put(folder, "a", "en de and more")
    look_thrice(models)
    assert models.directions.models["en", "de"] is first
    put(folder, "c", "what is this")
    look_thrice(models)
    assert capsys.readouterr().err.splitlines() == [
        "note: a: not served (a is damaged)",
        "note: a: not served (config.yaml must name two languages)",
        "note: c: not served (config.yaml must name two languages)",
    ]


def test_a_direction_has_one_model_and_the_next_takes_its_place(watching, folder, capsys):
    put(folder, "a", "en de")
    put(folder, "b", "en de")
    start = Starts()
    models = watching(start=start)
    assert start.started == ["a"]
    assert capsys.readouterr().err == "note: b: not served, as a translates en to de\n"
    (folder / "a" / "config.yaml").unlink()
    models.look()
    models.look()
    assert models.directions.models["en", "de"].name == "b" and start.started == ["a", "b"]


@pytest.mark.parametrize("unload_after", [0, 60])
def test_a_model_that_another_took_the_place_of_comes_back_when_that_goes(watching, folder, unload_after):
    put(folder, "b", "en de")
    models = watching(unload_after=unload_after)
    client = TestClient(build_app(models.directions, Limits()))
    for name in ("b", "a", "b"):
        if name == "a":
            put(folder, "a", "en de")
        elif (folder / "a").exists():
            (folder / "a" / "config.yaml").unlink()
        look_thrice(models)
        assert models.directions.models["en", "de"].name == name
        body = {"q": "a dog", "source": "en", "target": "de"}
        assert client.post("/translate", json=body).json() == {"translatedText": "A DOG"}


def test_a_link_to_nothing_and_a_file_or_folder_that_goes_for_a_while_change_no_model(watching, folder):
    put(folder, "a", "en de")
    models = watching()
    first = models.directions.models["en", "de"]
    (folder / "a" / ".#config.yaml").symlink_to("nowhere")
    look_thrice(models)
    assert models.directions.models["en", "de"] is first
    (folder / "a" / "config.yaml").rename(folder / "kept")
    models.look()  # such as between two steps of a copy
    (folder / "kept").rename(folder / "a" / "config.yaml")
    look_thrice(models)
    assert models.directions.models["en", "de"] is first
    folder.rename(folder.with_name("elsewhere"))
    models.look()
    assert pairs(models) == ["en de"]


def test_a_load_that_failed_is_not_tried_again_at_once():
    tries = []
    now = [0.0]

    def start():
        tries.append(now[0])
        raise InputError("it is damaged")

    async def ask(model, count):
        async def one():
            async with model.loaded():
                pass

        return await asyncio.gather(*(one() for _ in range(count)), return_exceptions=True)

    model = Model(start, "a", clock=lambda: now[0])
    failures = asyncio.run(ask(model, 40))
    assert all(isinstance(failure, NotLoadedError) for failure in failures) and tries == [0.0]
    now[0] = 11.0
    asyncio.run(ask(model, 2))
    assert tries == [0.0, 11.0]


def test_a_model_is_in_memory_while_it_is_used(watching, folder):
    put(folder, "a", "en de")
    start = Starts()
    models = watching(start=start, unload_after=0.05)
    (model,) = models.directions.models.values()
    client = TestClient(build_app(models.directions, Limits()))
    listed = {"source": "en", "target": "de", "name": "a"}
    assert client.get("/models").json() == [{**listed, "memory": None}] and not start.started
    body = {"q": "a dog", "source": "en", "target": "de"}
    assert client.post("/translate", json=body).json() == {"translatedText": "A DOG"}
    assert client.get("/models").json()[0]["memory"] is not None and start.started == ["a"]
    models.look()
    assert model.is_loaded  # it was used just now
    time.sleep(0.06)
    models.look()
    assert not model.is_loaded
    assert client.post("/translate", json=body).status_code == 200 and start.started == ["a", "a"]
    assert model.translated == 2
    start.fails.add("a")
    model.unload()
    answer = client.post("/translate", json=body)
    assert answer.status_code == 500 and "could not be loaded; see the server's log" in answer.text
    file = {"file": ("a.txt", b"a dog")}
    assert client.post("/translate_file", data=body, files=file).status_code == 500


def test_a_model_that_is_used_stays_and_one_that_is_closed_does_not_come_back():
    async def use():
        model = Model(lambda: Batcher(upper_case_translator(), wait=0.0))
        async with model.loaded() as batcher:
            assert not model.unload() and not model.close()
            assert (await batcher.translate(["a dog"]))[0].translation == "A DOG"
        assert model.close()
        with pytest.raises(ModelGoneError):
            async with model.loaded():
                pass
        broken = Model(lambda: 1 / 0, "broken")
        with pytest.raises(NotLoadedError, match="broken: division by zero"):
            async with broken.loaded():
                pass

    asyncio.run(use())


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="the system does not say")
def test_the_memory_of_a_model_is_what_it_took():
    size = 50_000_000
    held = []

    def start():
        held.append(mmap.mmap(-1, size))  # not memory that this process has kept
        held[0][:] = b"x" * size
        return Batcher(upper_case_translator(), wait=0.0)

    model = Model(start)
    assert model.memory is None
    model.load()
    assert size * 0.9 < model.memory < size * 3
    model.close()


def test_the_list_of_models_needs_a_key_where_all_does(watching):
    models = watching()
    client = TestClient(build_app(models.directions, Limits(), ApiKeys([("secret", None)])))
    assert client.get("/models").status_code == 403
    assert client.get("/models", headers={"Authorization": "Bearer secret"}).json() == []
    assert client.get("/languages").json() == []
    assert client.get("/frontend/settings").json()["language"]["target"]["code"] == "en"
    answer = client.post("/translate", json={"q": "a", "source": "en", "target": "de", "api_key": "secret"})
    assert answer.status_code == 503 and "this server has no model" in answer.json()["error"]
