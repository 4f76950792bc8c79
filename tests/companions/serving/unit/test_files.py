"""Files through the server, as clients of LibreTranslate send them."""

import asyncio
import json
import os
import re
import shutil

import pytest

pytest.importorskip("starlette")

from starlette.testclient import TestClient

from tests.companions.documents.unit.office_files import random_file, zipped
from tests.companions.documents.unit.test_office_property import members
from tests.companions.serving.unit.models import directions_of
from tests.helpers.upper_case import capitals, upper_case_translator
from transformer_mt.companions.serving.batcher import Batcher, QueueFullError
from transformer_mt.companions.serving.http.file_routes import TranslatedFiles
from transformer_mt.companions.serving.http.limits import ApiKeys, Limits
from transformer_mt.companions.serving.http.server import build_app
from transformer_mt.companions.serving.models import Directions, known_code


@pytest.fixture(scope="module")
def directions():
    batcher = Batcher(upper_case_translator(split_sentences=False), wait=0.0)
    yield directions_of({("en", "de"): batcher})
    batcher.close()


def client_of(directions, limits=None, **options):
    return TestClient(build_app(directions, Limits(**(limits or {})), **options))


@pytest.fixture
def client(directions):
    return client_of(directions)


def send(client, name, content, **fields):
    files = {"file": (name, content)}
    return client.post("/translate_file", data={"source": "en", "target": "de", **fields}, files=files)


def fetched(client, answer):
    assert answer.status_code == 200, answer.json()
    found = client.get(answer.json()["translatedFileUrl"])
    assert found.status_code == 200
    return found


@pytest.mark.parametrize(
    "name, content, expected",
    [
        ("a.txt", b"one line\r\n\r\nand two\n", b"ONE LINE\r\n\r\nAND TWO\n"),
        ("a.html", b"<p>a <b>big</b> dog", b"<p>A <b>BIG</b> DOG"),
        ("a b.json", b'{"a": "text"}', b'{"a": "TEXT"}'),
        (
            "../../etc/a.srt",
            b"1\n00:00:01,000 --> 00:00:02,000\nhello\n",
            b"1\n00:00:01,000 --> 00:00:02,000\nHELLO\n",
        ),
    ],
)
def test_a_file_is_translated_and_fetched(client, name, content, expected):
    found = fetched(client, send(client, name, content))
    assert found.content == expected
    stem, _, ending = name.rpartition("/")[2].rpartition(".")
    assert f'"{stem}_de.{ending}"' in found.headers["content-disposition"] or "%20" in str(found.headers)


def test_an_office_document_comes_back_whole(client):
    raw, texts = random_file("docx", 5)
    after = members(fetched(client, send(client, "report.docx", raw)).content)
    before = members(raw)
    assert list(after) == list(before)
    assert all(capitals(after[name]) == capitals(before[name]) for name in texts) and after != before


def test_the_language_of_a_file_is_found(client):
    text = "<p>The old dog sleeps in the garden, and nobody sees the cat in the house.</p>"
    page = f'<html lang="en"><img alt="A dog.">{text}'
    found = fetched(client, send(client, "a.html", page.encode(), source="auto")).content
    assert b"THE OLD DOG" in found and b'alt="A DOG."' in found


@pytest.mark.parametrize(
    "name, content, fields, message",
    [
        ("a.pdf", b"%PDF", {}, "ends in .pdf; convert it to .docx"),
        ("a.exe", b"x", {}, "a.exe: must be a text file (.txt) or end in .html, .htm, "),
        ("a.docx", b"no zip", {}, "a.docx: must be a whole zip file"),
        ("a.json", b"{", {}, "a.json: must be JSON"),
        ("a.txt", b"caf\xe9", {}, "a.txt:1: must be UTF-8"),
        ("a.txt", b"x", {"target": "xx"}, "target must be one of de"),
        ("a.txt", b"x", {"source": ""}, "source must be a language code or auto"),
    ],
)
def test_what_cannot_be_translated_is_refused(client, name, content, fields, message):
    answer = send(client, name, content, **fields)
    error = answer.json()["error"]
    assert answer.status_code == 400 and message in error and "format" not in error


def test_files_have_limits_keys_and_a_form(directions):
    answer = client_of(directions).post("/translate_file", data={"source": "en", "target": "de"})
    error = "the body must be a form (multipart/form-data) with one file"
    assert (answer.status_code, answer.json()["error"]) == (400, error)
    small = client_of(directions, {"file_bytes": 10})
    assert send(small, "a.txt", b"x" * 30_000).status_code == 413
    assert send(client_of(directions, {"file_bytes": 0}), "a.txt", b"x").status_code == 403
    locked = client_of(directions, keys=ApiKeys([("secret", None)]))
    assert send(locked, "a.txt", b"x").status_code == 403
    assert send(locked, "a.txt", b"x", api_key="secret").status_code == 200
    bearer = {"Authorization": "Bearer secret"}
    data = {"q": "a", "source": "en", "target": "de"}
    assert locked.post("/translate", json=data, headers=bearer).json() == {"translatedText": "A"}
    assert locked.post("/translate", json=data, headers={"Authorization": "Bearer x"}).status_code == 403


def test_a_file_waits_for_half_an_hour_and_has_a_name_nobody_can_guess():
    now = [0.0]
    files = TranslatedFiles(lambda: now[0])
    first, second = files.add(b"1", "a.txt", "de"), files.add(b"2", "a.txt", "de")
    assert first != second and first.endswith(".a_de.txt") and len(first) > 25
    now[0] = 1000.0
    assert files.find(first)[0].read_bytes() == b"1" and files.find(first)[1] == "a_de.txt"
    assert files.find("../" + first) is None and files.find("") is None
    path = files.find(second)[0]
    now[0] = 1801.0
    assert files.find(second) is None and not path.exists()
    files = TranslatedFiles(most_bytes=10)  # the last one has its place whatever its size
    names = [files.add(b"12345678", "a.txt", "de") for _ in range(3)]
    assert [files.find(name) is not None for name in names] == [False, False, True]


def test_translated_files_end_with_the_server_and_survive_a_cleaner(monkeypatch):
    files = TranslatedFiles()
    path = files.find(files.add(b"1", "a.txt", "de"))[0]
    shutil.rmtree(path.parent)
    name = files.add(b"2", "a.txt", "de")
    path = files.find(name)[0]
    assert path.read_bytes() == b"2"

    def full(self, content):
        with self.open("wb") as file:
            file.write(content[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError):
        files.add(b"34", "b.txt", "de")
    assert list(path.parent.iterdir()) == [path]
    files.close()
    assert not path.parent.exists()


def test_clients_without_a_key_do_not_keep_out_those_with_one(directions):
    """A key in the form is known only when the file is here."""
    keys = ApiKeys([("secret", None)])
    app = build_app(directions, Limits(), keys)

    async def waits(scope, count):
        reads = [0]

        async def receive():
            reads[0] += 1
            await asyncio.sleep(30)

        tasks = [asyncio.ensure_future(app(scope, receive, None)) for _ in range(count)]
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return reads[0]

    form = (b"content-type", b"multipart/form-data; boundary=x")
    scope = {"type": "http", "method": "POST", "path": "/translate_file", "query_string": b""}
    unknown = {**scope, "headers": [form]}
    known = {**scope, "headers": [form, (b"authorization", b"Bearer secret")]}

    async def both():
        first = asyncio.ensure_future(waits(unknown, 30))
        await asyncio.sleep(0.02)
        return await waits(known, 30), await first

    assert asyncio.run(both()) == (20, 10)


def test_a_small_file_with_much_text_is_refused(client):
    text = b"<w:p><w:r><w:t>a b</w:t></w:r></w:p>" * 300_000
    members = {"word/document.xml": b'<w:document xmlns:w="W"><w:body>' + text + b"</w:body></w:document>"}
    answer = send(client, "a.docx", zipped(members))
    assert answer.status_code == 400 and "at most 10,000,000 bytes of XML" in answer.json()["error"]


def test_suggestions_are_kept_up_to_a_size_if_the_owner_wants_them(directions, tmp_path):
    better = {"q": "a dog", "s": "ein Hund", "source": "en", "target": "de"}
    refused = client_of(directions).post("/suggest", json=better)
    assert (refused.status_code, refused.json()) == (403, {"error": "this server does not take suggestions"})
    client = client_of(directions, suggestions=tmp_path / "s.jsonl")
    for _ in range(2):
        assert client.post("/suggest", data=better).json() == {"success": True}
    lines = (tmp_path / "s.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [better, better]
    missing = client.post("/suggest", json={**better, "s": ""})
    assert (missing.status_code, missing.json()) == (400, {"error": "s must be a text"})
    os.truncate(tmp_path / "s.jsonl", 100_000_001)  # which takes no place on the disk
    answer = client.post("/suggest", json=better)
    assert answer.status_code == 500 and "could not be kept" in answer.text
    assert (tmp_path / "s.jsonl").stat().st_size == 100_000_001


def test_a_page_of_libretranslate_finds_its_settings(directions):
    found = client_of(directions, {"characters": 0}).get("/frontend/settings").json()
    assert found["charLimit"] == -1 and found["filesTranslation"] and not found["suggestions"]
    assert {".txt", ".docx", ".html", ".srt", ".epub", ".odt", ".pptx"} <= set(found["supportedFilesFormat"])
    assert found["language"]["target"] == {"code": "de", "name": "German"}


def test_pages_of_any_origin_may_be_let_in(directions):
    client = client_of(directions, origins=["*"])
    asked = client.options(
        "/translate",
        headers={
            "Origin": "https://x.example", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "Authorization, Content-Type",
        },
    )  # fmt: skip
    assert asked.status_code == 200 and asked.headers["access-control-allow-origin"] == "*"


OTHER_CODES = """
zh-Hans zh zh
zh-TW zh_Hans,zh_Hant zh_Hant
zt zh,zh_Hant zh_Hant
zh-TW zh zh-TW
pb pt_PT,pt_BR pt_BR
en eng_Latn eng_Latn
xx en xx
sr-Latn sr sr-Latn
"""


@pytest.mark.parametrize("line", OTHER_CODES.split("\n")[1:-1])
def test_languages_have_other_codes(line):
    """A code, those of a server, and which of them it is; itself where it is none."""
    code, known, found = line.split()
    assert known_code(code, known.split(",")) == found


def test_a_request_may_use_another_code(client):
    answer = client.post("/translate", json={"q": "a", "source": "en-US", "target": "de-AT"})
    assert answer.json() == {"translatedText": "A"}
    assert fetched(client, send(client, "a.txt", b"a", source="en_GB", target="de-CH")).content == b"A"
    wrong = client.post("/translate", json={"q": "a", "source": "en-US", "target": "fr-CA"})
    assert wrong.json()["error"] == "target must be one of de with source en, but is fr-CA"


def test_the_api_describes_itself(client):
    spec = client.get("/spec").json()
    assert spec["openapi"] == "3.1.0" and client.post("/spec").status_code == 405
    translate = spec["paths"]["/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"q", "source", "target"} == set(translate["required"])
    assert "glossary" in translate["properties"]
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert all(path in page.text for path in spec["paths"])


def test_metrics_count_requests_and_lines(directions):
    client = client_of(directions, metrics=True)
    client.post("/translate", json={"q": "a\nb", "source": "en", "target": "de"})
    client.post("/translate", json={"q": "a", "source": "en", "target": "xx"})
    client.get("/no/such/path")
    found = client.get("/metrics").text
    assert 'transformer_mt_requests_total{path="/translate",status="200"} 1.0' in found
    assert 'transformer_mt_requests_total{path="/translate",status="400"} 1.0' in found
    assert 'transformer_mt_requests_total{path="other",status="404"} 1.0' in found
    assert 'transformer_mt_request_seconds_count{path="/translate"} 2.0' in found
    assert 'transformer_mt_lines_in_work{source="en",target="de"} 0.0' in found
    assert re.search(r'lines_translated\{source="en",target="de"\} \d', found)
    assert client_of(directions).get("/metrics").status_code == 404


def test_a_catalogue_is_not_translated_by_two_models(directions):
    """The second would find it translated, into the language between."""
    (model,) = directions.models.values()
    client = client_of(Directions({("de", "en"): model, ("en", "fr"): model}))
    answer = send(client, "a.po", b'msgid "a"\nmsgstr ""\n', source="de", target="fr")
    assert (answer.status_code, answer.json()["error"]) == (
        400, "there must be a model from de to fr for po, but there is none",
    )  # fmt: skip
    answer = send(client, "a.txt", b"a", source="de", target="fr")
    assert answer.json()["pivotLanguage"] == "en" and fetched(client, answer).content == b"A"


def test_progress_is_said_line_by_line(client):
    """The page asks for lines of JSON, of which the last is the answer."""
    lines = "".join(f"line {number}\n" for number in range(450))
    files = {"file": ("a.txt", lines.encode())}
    fields = {"source": "en", "target": "de"}
    accept = {"Accept": "application/x-ndjson"}
    answer = client.post("/translate_file", data=fields, files=files, headers=accept)
    *progress, last = map(json.loads, answer.text.splitlines())
    assert progress == [{"done": done, "of": 450} for done in (0, 200, 400, 450)]
    assert client.get(last["translatedFileUrl"]).text == lines.upper()
    files = {"file": ("a.json", b"{")}
    answer = client.post("/translate_file", data=fields, files=files, headers=accept)
    (only,) = map(json.loads, answer.text.splitlines())
    assert "a.json" in only["error"]


class Counting:
    """A translator that counts what it is asked."""

    def __init__(self):
        self._translator = upper_case_translator(split_sentences=False)
        self.asked = []

    def __getattr__(self, name):
        return getattr(self._translator, name)

    def with_engine(self, engine):
        return self

    def translate(self, lines, n_best=1, **options):
        self.asked += lines
        return self._translator.translate(lines, n_best, **options)


def test_a_text_that_occurs_again_is_translated_once():
    translator = Counting()
    batcher = Batcher(translator, wait=0.0)
    client = client_of(directions_of({("en", "de"): batcher}))
    rows = "".join(f"row {number}\nagain\n" for number in range(150))
    assert fetched(client, send(client, "a.txt", rows.encode())).text == rows.upper()
    assert translator.asked == list(dict.fromkeys(rows.splitlines()))
    batcher.close()


def test_a_file_waits_where_too_much_is_waiting():
    """The translated part of it would be lost; other requests are asked to come again."""
    calls = []

    class FullAtTimes(Batcher):
        async def translate(self, lines, n_best=1, **options):
            calls.append(len(lines))
            if len(calls) % 2:
                raise QueueFullError
            return await super().translate(lines, n_best, **options)

    batcher = FullAtTimes(upper_case_translator(split_sentences=False), wait=0.0)
    client = client_of(directions_of({("en", "de"): batcher}))
    lines = "".join(f"line {number}\n" for number in range(300))
    assert fetched(client, send(client, "a.txt", lines.encode())).text == lines.upper()
    assert calls == [200, 200, 100, 100]
    batcher.close()


def test_a_name_can_be_fetched_by_programs_a_long_one_is_cut_and_a_full_disk_is_said(directions, monkeypatch):
    client = client_of(directions)
    address = send(client, "Mein Bericht für Ü.txt", b"a").json()["translatedFileUrl"]
    assert address.isascii() and " " not in address and client.get(address).content == b"A"
    found = fetched(client, send(client, "長" * 95 + ".txt", b"a dog"))
    assert found.content == b"A DOG"
    monkeypatch.setattr("pathlib.Path.write_bytes", lambda *_: 1 / 0)
    accept = {"Accept": "application/x-ndjson"}
    fields = {"source": "en", "target": "de"}
    answer = client.post("/translate_file", data=fields, files={"file": ("a.txt", b"x")}, headers=accept)
    assert "the translation failed" in json.loads(answer.text.splitlines()[-1])["error"]
    assert send(client, "a.txt", b"x").status_code == 500
