"""The LibreTranslate API: its shapes, its errors, and that nothing a client sends breaks it."""

import asyncio
import json
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from transformer_mt.companions.serving.http.limits import ApiKeys, RequestRate
from transformer_mt.errors import InputError

pytest.importorskip("starlette")

from starlette.testclient import TestClient

from tests.companions.serving.unit.models import directions_of
from tests.helpers.upper_case import UpperCaseEngine
from transformer_mt.companions.serving.batcher import Batcher, QueueFullError
from transformer_mt.companions.serving.http.limits import Limits
from transformer_mt.companions.serving.http.requests import TranslateBody
from transformer_mt.companions.serving.http.server import build_app
from transformer_mt.companions.serving.models import Directions
from transformer_mt.companions.serving.text_translation import translate_html
from transformer_mt.config import DecodeConfig
from transformer_mt.translation.result import Candidate, Translation
from transformer_mt.translation.stages.call import NO_RESOURCES
from transformer_mt.translator import Translator


class Upper:
    """A translator into capitals; the k-th best has k exclamation marks more."""

    decode, source_lang, target_lang = DecodeConfig(beam=3), "en", "de"
    engine, terms, resources = UpperCaseEngine(None), None, NO_RESOURCES

    def __init__(self, name):
        self.name = name

    def with_engine(self, engine):
        return self

    def with_settings(self, protect_usual):
        return self

    def with_resources(self, glossary):
        other = Upper(self.name)
        other.terms = {term.source: term.targets for term in glossary.glossary.terms}
        return other

    def translate(self, lines, n_best=1, *, align=False, protect=None):
        if any("fail" in line for line in lines):
            raise RuntimeError("the text was: fail")
        each = [[f"{line.upper()}{'!' * k}{self.terms or ''}" for k in range(n_best)] for line in lines]
        return [
            Translation(line, texts[0], 0.0, 0.0, [], n_best=[Candidate(t, 0.0, 0.0, []) for t in texts])
            for line, texts in zip(lines, each)
        ]


@pytest.fixture(scope="module")
def directions():
    pairs = [("en", "de"), ("de", "en"), ("en", "fr")]
    batchers = {pair: Batcher(Upper(pair), wait=0.0, queue_lines=50) for pair in pairs}
    yield directions_of(batchers)
    for batcher in batchers.values():
        batcher.close()


def client_of(directions, **options):
    return TestClient(build_app(directions, Limits(**options.pop("limits", {})), **options))


@pytest.fixture(scope="module")
def client(directions):
    return client_of(directions)


def translate(client, **fields):
    return client.post("/translate", json={"source": "en", "target": "de", **fields})


def test_a_text_and_a_list_and_the_lines_of_a_text_stay_where_they_are(client):
    assert translate(client, q="a dog").json() == {"translatedText": "A DOG"}
    assert translate(client, q=["a", "b"]).json() == {"translatedText": ["A", "B"]}
    assert translate(client, q=[]).json() == {"translatedText": []}
    assert translate(client, q="a\r\n\n b\u2028c\n").json() == {"translatedText": "A\n\n B\u2028C\n"}
    assert translate(client, q="").json() == {"translatedText": ""}


def test_a_request_brings_terms(client):
    terms = {"dog": "Hund", "cat": ["Katze", "Kater"]}
    expected = "A DOG{'dog': ('Hund',), 'cat': ('Katze', 'Kater')}"
    assert translate(client, q="a dog", glossary=terms).json() == {"translatedText": expected}
    assert translate(client, q="a dog", glossary={}).json() == {"translatedText": "A DOG"}
    form = {"q": "a dog", "source": "en", "target": "de", "glossary": json.dumps(terms)}
    assert client.post("/translate", data=form).json() == {"translatedText": expected}
    page = translate(client, q="<p>a dog</p>", format="html", glossary={"dog": "Hund"}).json()
    assert "Hund" in page["translatedText"]
    for wrong in ("dog", ["dog"], {"dog": 1}, {"dog": "x" * 201}, {str(i): "x" for i in range(1001)}):
        answer = translate(client, q="a dog", glossary=wrong)
        assert answer.status_code == 400 and "glossary must be at most 1,000 terms" in answer.json()["error"]


def test_alternatives_are_at_most_what_the_search_finds(client):
    answer = translate(client, q="a\nb", alternatives=9).json()
    assert answer == {"translatedText": "A\nB", "alternatives": ["A!\nB!", "A!!\nB!!"]}
    assert translate(client, q=["a"], alternatives=1).json()["alternatives"] == [["A!"]]


def test_the_source_is_detected_among_what_the_target_can_have(client, directions):
    german = "Der Hund schläft in dem Haus und träumt."
    answer = translate(client, q=german, source="auto", target="en").json()
    assert answer["detectedLanguage"]["language"] == "de" and answer["translatedText"] == german.upper()
    english = "The dog sleeps in the house."
    answer = translate(client, q=[english, german], source="auto", target="fr").json()
    assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "de"]
    assert answer["pivotLanguage"] == [None, "en"]
    only = client_of(Directions({("en", "fr"): directions.models["en", "fr"]}))
    answer = translate(only, q=[english, "Hund"], source="auto", target="fr").json()
    assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "en"]
    assert answer["detectedLanguage"][0]["confidence"] > 50 > answer["detectedLanguage"][1]["confidence"]


@pytest.mark.parametrize("format", ["text", "html"])
def test_a_text_in_a_language_that_is_not_translated_is_not_taken_for_another(client, format):
    for text, target, told in [
        ("Il cane dorme nella casa di mio padre e sogna.", "fr",
         "en or de with target fr, but the text is in Italian (it)"),
        ("Собака спит в доме и видит сны.", "de", "en with target de, but the text is in Russian (ru)"),
    ]:  # fmt: skip
        answer = translate(client, q=text, source="auto", target=target, format=format)
        assert (answer.status_code, answer.json()["error"]) == (400, f"source must be {told}")


def test_one_foreign_text_of_a_list_comes_back_as_it_is(client):
    """Extensions send the texts of a page as a list."""
    texts = ["The dog sleeps in the house.", "Le chien dort dans la maison de mon père.", "The dog is old."]
    answer = translate(client, q=texts, source="auto", target="de").json()
    assert answer["translatedText"] == [texts[0].upper(), texts[1], texts[2].upper()]
    assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "fr", "en"]


def send(client, path="/translate", **options):
    return client.post(path, **options)


def test_what_clients_of_libretranslate_send_is_understood(client):
    pair = {"source": "en", "target": "de"}
    expected = {"translatedText": ["A MAN", "A DOG"]}
    several = {"q": ["a man", "a dog"], **pair}
    assert send(client, data=several).json() == expected
    parts = [("q", (None, "a man")), ("q", (None, "a dog")), *((k, (None, v)) for k, v in pair.items())]
    assert send(client, files=parts).json() == expected
    assert send(client, params=several).json() == expected
    blank = {"q": "a dog", **pair, "format": "", "alternatives": "", "api_key": ""}
    for body in ({"data": blank}, {"json": blank}, {"json": {**blank, "format": None, "alternatives": None}}):
        assert send(client, **body).json() == {"translatedText": "A DOG"}
    fields = {"q": "a", **pair, "alternatives": "1"}
    parts = {key: (None, value) for key, value in fields.items()}
    for body in ({"json": fields}, {"data": fields}, {"files": parts}):
        assert send(client, **body).json() == {"translatedText": "A", "alternatives": ["A!"]}
    marked = "\ufeff" + json.dumps({"q": "a dog", **pair})
    headers = {"content-type": "application/json"}
    assert send(client, content=marked.encode(), headers=headers).json() == {"translatedText": "A DOG"}
    english = ["The dog sleeps in the house.", "A cat sings in the garden."]
    assert send(client, "/detect", json={"q": english}).json()[0]["language"] == "en"


def test_bytes_that_are_no_text_are_refused(client):
    form = {"content-type": "application/x-www-form-urlencoded"}
    for content in (b"q=caf%E9&source=en&target=de", b"q=caf\xe9&source=en&target=de"):
        answer = send(client, content=content, headers=form)
        assert answer.status_code == 400
        assert answer.json()["error"] == "the form must be in UTF-8, but byte 0xe9 is not"
    answer = send(client, files={"q": (None, b"caf\xe9"), "source": (None, "en"), "target": (None, "de")})
    assert answer.status_code == 400 and "must be in UTF-8, but byte 0xe9" in answer.json()["error"]
    answer = send(client, files={"q": ("f.txt", b"dog")}, data={"source": "en", "target": "de"})
    assert answer.status_code == 400 and "must be a text, but is a file; send its content" in answer.text


def test_what_would_hold_up_the_server_is_refused(client):
    """Decoding punycode takes minutes, and so does finding the language of a hundred thousand texts."""
    part = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nA-\r\n--x--\r\n'
    for path in ("/translate", "/translate_file"):
        headers = {"content-type": "multipart/form-data; boundary=x; charset=punycode"}
        answer = send(client, path, content=part, headers=headers)
        assert answer.status_code == 400 and "must be in UTF-8, but its charset is punycode" in answer.text
    for format in ("text", "html"):
        answer = translate(client, q=[""] * 2001, source="auto", format=format)
        assert answer.status_code == 400 and "at most 2,000 lines, but have 2,001" in answer.text


def test_other_methods_paths_and_empty_bodies_are_refused(client):
    """The tests of LibreTranslate expect the same."""
    assert client.get("/detect").status_code == 405
    answer = client.get("/translate")
    assert (answer.status_code, answer.json()) == (405, {"error": "Method Not Allowed"})
    assert client.get("/nothing").json() == {"error": "Not Found"}
    for path in ("/languages", "/health", "/spec", "/frontend/settings"):
        assert client.post(path).status_code == 405
    assert client.post("/detect").status_code == 400 and "error" in client.post("/detect").json()


def test_the_texts_of_attributes_and_placeholders_are_options(tiny_run):
    translator = Translator.load(tiny_run, device="cpu")
    batcher = Batcher(translator)
    client = client_of(directions_of({("en", "de"): batcher}))

    def of(**fields):
        return translate(client, **fields).json()["translatedText"]

    line = "The dog sees {name} today."
    assert "{name}" in of(q=line) and "{name}" not in of(q=line, protect=False)
    html = '<img alt="The dog sleeps.">'
    assert "The dog" not in of(q=html, format="html")
    assert of(q=html, format="html", attributes=False) == html
    page = f'<html lang="de">{html}'  # translated from German before, into the language between
    assert asyncio.run(translate_html(batcher, page, 0)) == [page]
    assert "The dog" not in asyncio.run(translate_html(batcher, page, 0, source_lang="de"))[0]
    batcher.close()


def test_two_models_translate_where_there_is_none_for_a_direction(client):
    fields = {"source": "de", "target": "fr", "alternatives": 1}
    answer = translate(client, q="ein Hund", **fields).json()
    assert answer == {"translatedText": "EIN HUND", "alternatives": ["EIN HUND!"], "pivotLanguage": "en"}
    html = translate(client, q="<p>ein Hund", format="html", source="de", target="fr")
    assert html.json() == {"translatedText": "<p>EIN HUND", "pivotLanguage": "en"}
    answer = translate(client, q="ein Hund", **fields, glossary={"Hund": "chien"})
    assert answer.status_code == 400
    assert answer.json()["error"] == "there must be a model from de to fr for a glossary, but there is none"
    details = client.post("/details", json={"q": "ein Hund\n\nzwei", "source": "de", "target": "fr"}).json()
    assert details["pivotLanguage"] == "en"  # the page shows the translation without words and scores
    assert [line["candidates"][0]["text"] for line in details["lines"]] == ["EIN HUND", "", "ZWEI"]
    assert [line["source"] for line in details["lines"]] == ["ein Hund", "", "zwei"]
    same = client.post("/details", json={"q": "ein Hund", "source": "de", "target": "de"}).json()
    assert same["lines"][0]["candidates"][0]["text"] == "ein Hund"


def test_languages_with_their_targets(client):
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de", "fr"]},
        {"code": "de", "name": "German", "targets": ["en", "fr"]},
        {"code": "fr", "name": "French", "targets": []},
    ]
    assert client.get("/health").json() == {"status": "ok"}
    found = client.post("/detect", data={"q": "Le chien dort dans la maison de mon père."}).json()
    assert found[0]["language"] == "fr" and found[0]["confidence"] > 90 and len(found) == 3


def test_a_text_that_is_in_or_found_to_be_in_the_target_language_stays(client):
    """It was taken for a text in the only source language there is, and translated."""
    assert translate(client, q="a dog", target="en").json() == {"translatedText": "a dog"}
    french = "Le chien dort dans la grande maison."
    answer = translate(client, q=french, source="auto", target="fr").json()
    assert answer["translatedText"] == french and answer["detectedLanguage"]["language"] == "fr"
    answer = translate(client, q="Menu", source="auto", target="fr").json()  # one word may be in any
    assert answer["translatedText"] == "MENU" and answer["detectedLanguage"]["language"] == "en"


@pytest.mark.parametrize(
    "fields, error",
    [
        ({"q": ["a", None]}, "q must be a text or a list of texts"),
        ({"q": "a", "source": None}, "source must be a language code or auto"),
        ({"q": "a", "target": "xx"}, "target must be one of de, fr with source en, but is xx"),
        ({"q": "a", "source": "xx", "target": "yy"}, "target must be one of de, en, fr, but is yy"),
        ({"q": "a", "source": "xx"}, "source must be auto or one of en, de, but is xx"),
        ({"q": "a", "format": "pdf"}, "format must be text or html"),
        ({"q": "a", "alternatives": -1}, "alternatives must be a number from 0 to 100"),
        ({"q": "\ud800"}, "texts must be Unicode, but one has half of a surrogate pair"),
        ({"q": "x" * 20_001}, "the texts must have at most 20,000 characters, but have 20,001"),
        ({"q": ["\n"] * 1001}, "the texts must have at most 2,000 lines, but have 2,002"),
    ],
)
def test_a_request_with_a_mistake_gets_400_and_the_reason(client, fields, error):
    body = json.dumps({"source": "en", "target": "de", **fields})
    answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()) == (400, {"error": error})


def test_a_number_of_many_digits_in_a_form_gets_400(client):
    fields = {"q": "a", "source": "en", "target": "de", "alternatives": "9" * 5000}
    answer = client.post("/translate", data=fields)
    error = {"error": "alternatives must be a number from 0 to 100"}
    assert (answer.status_code, answer.json()) == (400, error)


def test_an_error_of_the_model_says_nothing_of_the_text(client, caplog):
    answer = translate(client, q="please fail")
    assert answer.status_code == 500 and "log" in answer.json()["error"]
    assert "RuntimeError" in caplog.text and "fail" not in caplog.text.replace("failed", "")


def test_a_large_body_is_refused(directions):
    client = client_of(directions, limits={"characters": 100_000})
    widest = "\\ud83d\\ude00" * 100_000  # twelve bytes for a character
    body = f'{{"q": "{widest}", "source": "en", "target": "de"}}'
    assert send(client, content=body).status_code == 200
    answer = send(client, content=body + " " * 100_000)
    assert answer.status_code == 413 and "at most 1,300,000 bytes" in answer.json()["error"]


@contextmanager
def directions_by(kind):
    """One direction, whose batcher is of this class."""
    batcher = kind(Upper(("en", "de")), wait=0.0)
    yield directions_of({("en", "de"): batcher})
    batcher.close()


def test_a_full_queue_asks_to_come_again():
    class Full(Batcher):
        async def translate(self, lines, n_best=1, **options):
            raise QueueFullError

    with directions_by(Full) as directions:
        answer = translate(client_of(directions), q="a")
    assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1


@pytest.fixture
def slow():
    """Directions that take their time, the lines begun, and those that nobody waits for any more."""
    begun, given_up = [], []

    class Slow(Batcher):
        async def translate(self, lines, n_best=1, **options):
            begun.append(lines)
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                given_up.append(lines)
                raise

    with directions_by(Slow) as directions:
        yield directions, begun, given_up


def test_a_translation_that_takes_too_long_is_given_up(slow):
    directions, begun, given_up = slow
    answer = translate(client_of(directions, limits={"seconds": 1}), q="a")
    assert answer.status_code == 503 and "more than 1 seconds" in answer.json()["error"]
    assert begun == given_up == [["a"]]


def test_a_client_that_is_gone_is_not_translated_for(slow):
    directions, begun, given_up = slow
    messages = [
        {"type": "http.request", "body": b'{"q": ["a", "b"], "source": "en", "target": "de"}'},
        {"type": "http.disconnect"},
    ]

    async def receive():
        while len(messages) == 1 and not begun:
            await asyncio.sleep(0.01)
        return messages.pop(0)

    async def send(message):
        assert message.get("status", 499) == 499

    asyncio.run(asyncio.wait_for(build_app(directions, Limits())(SCOPE, receive, send), 10))
    assert given_up == [["a", "b"]]


SCOPE = {"type": "http", "method": "POST", "path": "/translate", "headers": [], "query_string": b""}


def test_a_client_that_sends_slowly_is_told_so(directions):
    messages = [{"type": "http.request", "body": b"{", "more_body": True}]
    sent = []

    async def receive():
        if messages:
            return messages.pop(0)
        await asyncio.sleep(30)

    async def send(message):
        sent.append(message)

    app = build_app(directions, Limits(body_seconds=0.05))
    asyncio.run(asyncio.wait_for(app(SCOPE, receive, send), 10))
    assert sent[0]["status"] == 408 and b"within 0.05 seconds" in sent[1]["body"]


def test_the_rate_of_an_address_and_of_a_key(directions):
    client = client_of(directions, limits={"requests_per_minute": 2})
    answers = [translate(client, q="a") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 61
    keys = ApiKeys([("one", 1), ("two", None)])
    client = client_of(directions, limits={"requests_per_minute": 2}, keys=keys)
    asked = ["one", "one", "two", "two", "two"]
    statuses = [translate(client, q="a", api_key=key).status_code for key in asked]
    assert statuses == [200, 429, 200, 200, 429]
    for fields in ({}, {"api_key": "three"}):
        answer = translate(client, q="a", **fields)
        error = {"error": "api_key must be one that this server knows"}
        assert (answer.status_code, answer.json()) == (403, error)


def test_wrong_keys_of_an_address_do_not_lock_out_the_right_one(directions):
    client = client_of(directions, limits={"requests_per_minute": 2}, keys=ApiKeys([("one", 5)]))
    guesses = [translate(client, q="a", api_key=str(number)).status_code for number in range(3)]
    assert guesses == [403, 403, 429]
    assert translate(client, q="a", api_key="one").status_code == 200


def test_a_list_of_many_things_that_are_no_texts_is_refused_at_once(directions):
    """An error for each of them would take seconds, and half a gigabyte."""
    answer = translate(client_of(directions), q=[1] * 100_000)
    assert answer.status_code == 400 and answer.json()["error"] == "q must be a text or a list of texts"
    with pytest.raises(ValidationError) as error:
        TranslateBody.model_validate({"q": [1] * 100, "source": "en", "target": "de"})
    assert error.value.error_count() == 2  # of a text, and of a list


def test_parameters_in_the_address_are_read_with_a_body_of_json(directions):
    client = client_of(directions)
    answer = client.post("/translate?source=en&target=xx", json={"q": "a", "target": "de"})
    assert answer.status_code == 200, answer.json()


def test_other_origins_are_let_in_only_if_they_are_named(directions, client):
    ask = {"origin": "https://example.org"}
    assert "access-control-allow-origin" not in client.get("/languages", headers=ask).headers
    open_client = client_of(directions, origins=["https://example.org"])
    found = open_client.get("/languages", headers=ask).headers["access-control-allow-origin"]
    assert found == "https://example.org"
    other = open_client.get("/languages", headers={"origin": "https://example.com"}).headers
    assert "access-control-allow-origin" not in other


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


_FIELDS = dict.fromkeys(("q", "source", "target", "format", "alternatives", "api_key"), _JSON)
_TYPES = [
    "application/json", "application/x-www-form-urlencoded", "multipart/form-data",
    "multipart/form-data; boundary=x", "text/plain", "",
]  # fmt: skip


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.binary(max_size=200) | st.fixed_dictionaries({}, optional=_FIELDS).map(json.dumps),
    content_type=st.sampled_from(_TYPES),
    path=st.sampled_from(["/translate", "/detect"]),
)
def test_whatever_a_client_sends_the_server_answers_in_json(client, body, content_type, path):
    answer = client.post(path, content=body, headers={"content-type": content_type})
    assert answer.status_code in (200, 400) and (answer.status_code == 200 or "error" in answer.json())


def test_details_have_candidates_words_and_attention(tiny_run):
    translator = Translator.load(tiny_run, device="cpu")
    batcher = Batcher(translator)
    client = client_of(directions_of({("en", "de"): batcher}))
    body = {"q": "The dog sleeps.\n\nA cat sings. \U0001f600 A dog.", "source": "en", "target": "de"}
    answer = client.post("/details", json={**body, "alternatives": 1})
    batcher.close()
    first, blank, last = answer.json()["lines"]
    expected = translator.translate(["The dog sleeps."], n_best=2)[0].n_best
    assert [c["text"] for c in first["candidates"]] == [c.translation for c in expected]
    assert [c["score"] for c in first["candidates"]] == [round(c.score, 4) for c in expected]
    (segment,) = first["segments"]
    assert [first["source"][b:e] for b, e in segment["source"]] == ["The", "dog", "sleeps", "."]
    assert {tuple(span) for span, _ in segment["links"]} == {tuple(span) for span in segment["source"]}
    assert {tuple(span) for _, span in segment["links"]} == {tuple(span) for span in segment["target"]}
    rows = segment["attention"]
    assert len(rows) == len(segment["target"]) and all(0 < sum(row) <= 1.01 and len(row) == 4 for row in rows)
    assert (blank["flags"], blank["segments"]) == (["empty"], [])
    assert last["source"][slice(*last["segments"][-1]["source"][-2])] == "dog"


def test_html_of_any_depth_is_read_and_of_too_many_texts_refused(client):
    nested = "<div>" * 400 + "a dog" + "</div>" * 400
    assert translate(client, q=nested, format="html").status_code == 200
    answer = translate(client, q="<p>a" * 60, format="html")
    assert answer.status_code == 400
    assert answer.json() == {"error": "the HTML must have at most 50 texts, but has 60"}


def test_documents_that_fit_the_queue_only_one_by_one_are_translated(client):
    """Asked for together, they once got 429 whenever they came."""
    answer = translate(client, q=["<p>a" * 40] * 3, format="html")
    assert answer.status_code == 200
    assert [text.count("A") for text in answer.json()["translatedText"]] == [40] * 3


def test_the_language_of_html_is_that_of_its_text(client):
    link = '<a href="https://example.com/about-us" title="Read more about the company">'
    answer = client.post("/translate", json={
        "q": f'<p class="content main">{link}</a>Der Hund schläft.</p>', "source": "auto", "target": "en",
        "format": "html",
    })  # fmt: skip
    assert answer.json()["detectedLanguage"]["language"] == "de"


def test_line_breaks_of_a_document_and_of_a_text_to_detect_wait_in_no_queue(client):
    assert translate(client, q="<p>a dog" + "\n" * 2100 + "</p>", format="html").status_code == 200
    assert client.post("/detect", json={"q": "a dog\n" * 2100}).status_code == 200
    answer = client.post("/details", json={"q": "a\n" * 2100, "source": "en", "target": "de"})
    assert answer.status_code == 400 and "at most 2,000 lines" in answer.json()["error"]


# Keys and rates of a server.


def test_keys_are_read_with_their_rates(tmp_path):
    (tmp_path / "keys").write_text("# ours\nalpha\n\nbeta 5\n", encoding="utf-8")
    keys = ApiKeys.read(tmp_path / "keys")
    alpha, beta = keys.find("alpha"), keys.find("beta")
    assert alpha[1] is None and beta[1] == 5 and alpha[0] != beta[0] and "alpha" not in alpha[0]
    for wrong in ("", "gamma", "alpha ", "beta 5", "#", "älpha", "\ud800"):
        assert keys.find(wrong) is None


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "keys: no such file"),
        (b"a b\n", "1: must be a key, with"),
        (b"a 1 2\n", "1: must be"),
        (b"a\nb 0\n", "2: must be a key, with its requests per minute .1 or more."),
        (b"#\n", "must have a key"),
        (b"a\xff\n", "keys:1: must be UTF-8"),
        ("a\u2028b\n".encode(), "keys:1: must be a key"),  # one line, of two words
    ],
)
def test_a_file_of_keys_with_mistakes_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "keys").write_bytes(content)
    with pytest.raises(InputError, match=message):
        ApiKeys.read(tmp_path / "keys")


def test_a_rate_counts_the_last_minute_of_each_client_and_forgets_those_of_long_ago():
    """Ten thousand are remembered: the memory of a server has an end."""
    now = [0.0]
    rate = RequestRate(lambda: now[0])
    assert [rate.seconds_to_wait("a", 2) for _ in range(2)] == [0.0, 0.0]
    now[0] = 10.0
    assert rate.seconds_to_wait("a", 2) == 50.0 and rate.seconds_to_wait("b", 2) == 0.0
    now[0] = 60.0
    assert rate.seconds_to_wait("a", 2) == 0.0
    clients = [f"client {number}" for number in range(10_001)]
    assert not any(rate.seconds_to_wait(client, 1) for client in clients)
    assert rate.seconds_to_wait(clients[-1], 1) > 0 and rate.seconds_to_wait(clients[0], 1) == 0
