"""The web page of `transformer-mt serve`, in a real browser."""

import pytest

from tests.companions.serving.integration.test_serve import Served
from tests.helpers.browser import browser, needs_chromium, watched_page
from transformer_mt.companions.serving.http.info_routes import page_routes

__all__ = ["browser"]
pytestmark = needs_chromium

LONG = "The old teacher sees a small bird in the garden. " * 8 + "x" * 200
TEXTS = {"long": LONG, "right to left": "רגע אחד, הכלב ישן."}


@pytest.fixture(scope="module")
def served(tiny_run):
    with Served(tiny_run) as server:
        yield server


@pytest.fixture
def page(browser, served):
    page = watched_page(browser, viewport={"width": 1000, "height": 800})
    page.goto(served.url)
    page.wait_for_selector("#target-lang option", state="attached")
    yield page
    assert page.problems == []
    assert all(url.startswith((served.url, "data:")) for url in page.asked)  # nothing from elsewhere
    page.close()


def translated(page):
    return page.wait_for_selector("#translation[aria-busy=false]:not(:empty)").text_content()


def test_what_is_typed_is_translated(page, tiny_run, cli):
    page.keyboard.type("The dog sleeps. A cat sings.")  # the field has the focus
    expected = cli("translate", tiny_run, "The dog sleeps. A cat sings.")[1].rstrip("\n")
    page.locator("#translation", has_text=expected).wait_for()
    assert translated(page) == expected
    assert page.locator("#translation").get_attribute("lang") == "de"
    assert page.locator("#count").text_content() == "28 characters"
    alternatives = page.locator("#alternatives li").all_text_contents()
    assert len(alternatives) == 4 and alternatives[0].startswith(expected)
    assert all("(score -" in each for each in alternatives)
    page.fill("#source", "The dog sleeps.\nA cat sings.")
    page.locator("#alternatives li", has_text="Line 2").wait_for()
    numbers = page.evaluate("() => [...document.querySelectorAll('#alternatives li')].map((li) => li.value)")
    assert numbers == [0, 1, 2, 3, 4] * 2  # those of each line begin with 1
    page.fill("#source", "")
    page.locator("#words-part").wait_for(state="hidden")
    assert page.locator("#translation").text_content() == ""


def test_a_word_shows_its_partners_and_the_attention_is_a_table_of_words(page):
    """Its partners when it is pointed at or reached by keys."""
    page.fill("#source", "The dog sleeps.")
    translated(page)
    words = page.locator("[aria-label='Source words'] .word")
    assert words.all_text_contents() == ["The", "dog", "sleeps", "."]
    assert page.locator(".linked").count() == 0
    words.nth(1).hover()
    assert page.locator("[aria-label='Source words'] .linked").text_content() == "dog"
    partners = page.locator("[aria-label='Translation words'] .linked").all_text_contents()
    assert partners and words.nth(1).get_attribute("aria-label") == f"dog: {' '.join(partners)}"
    words.nth(0).focus()
    page.mouse.move(0, 0)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator("[aria-label='Source words'] .linked").text_content() == "sleeps"
    page.click("summary")
    assert page.locator("#attention thead th").all_text_contents() == ["The", "dog", "sleeps", "."]
    rows = page.locator("#attention tbody tr")
    assert rows.count() == page.locator("[aria-label='Translation words'] .word").count()
    assert rows.first.locator("td").count() == 4
    assert "→" in rows.first.locator("td").first.get_attribute("title")


def test_a_late_answer_never_replaces_a_newer_one(page, tiny_run, cli):
    """The first answers are kept back until the last one was shown, and the browser does not abort them."""
    page.evaluate("() => { window.AbortController = class { signal = undefined; abort() {} }; }")
    kept = []

    def keep_first(route):
        if "teacher" in route.request.post_data:
            kept.append(route)
        else:
            route.continue_()

    page.route("**/details", keep_first)
    page.fill("#source", "The old teacher reads.")
    page.keyboard.press("Control+Enter")
    page.wait_for_timeout(100)
    page.fill("#source", "The dog sleeps.")
    expected = cli("translate", tiny_run, "The dog sleeps.")[1].rstrip("\n")
    page.locator("#translation", has_text=expected).wait_for()
    assert kept  # one, or two where the page asked of itself before the keys were pressed
    old = {"source": "a", "flags": [], "candidates": [{"text": "old", "score": -1}], "segments": []}
    for first in kept:
        with page.expect_response("**/details") as response:
            first.fulfill(json={"lines": [old]})
        response.value.finished()
    page.wait_for_timeout(100)
    assert translated(page) == expected


def test_a_refusal_is_shown_with_its_reason(page):
    """And what belongs to the text before is not."""
    page.fill("#source", "A cat sings.")
    page.locator("#translation:not(:empty)").wait_for()
    refusal = {"status": 429, "json": {"error": "too many texts wait to be translated"}}
    page.route("**/details", lambda route: route.fulfill(**refusal))
    page.fill("#source", "The dog sleeps.")
    page.locator("#status", has_text="Not translated: too many texts wait to be").wait_for()
    page.locator("#translation:empty").wait_for(state="attached")
    assert not page.locator("#key").is_visible()
    refusal.update(status=403, json={"error": "api_key must be one that this server knows"})
    page.fill("#source", "The cat sleeps.")
    page.locator("#status", has_text="Not translated: api_key must be one").wait_for()
    assert page.locator("#key").is_visible()
    assert page.evaluate("document.activeElement.id") == "source"  # what is typed next is no key
    page.problems.clear()  # the browser itself writes the status to its console


def test_a_page_waits_for_the_first_model(browser, served):
    page, there = watched_page(browser), []
    page.add_init_script("{ const wait = setTimeout; window.setTimeout = (f, ms) => wait(f, ms / 20); }")
    page.route("**/languages", lambda route: route.continue_() if there else route.fulfill(json=[]))
    page.goto(served.url)
    page.locator("#status", has_text="This server has no model yet.").wait_for()
    there.append("a model")
    page.wait_for_selector("#target-lang option", state="attached")
    assert page.locator("#status").text_content() == "" and page.problems == []
    page.close()


def test_what_may_be_wrong_is_said_in_plain_words(page):
    line = {
        "source": "a",
        "flags": ["truncated", "missing_number"],
        "candidates": [{"text": "b", "score": -1}],
    }
    page.route("**/details", lambda route: route.fulfill(json={"lines": [{**line, "segments": []}]}))
    page.fill("#source", "a")
    translated(page)
    assert page.locator("#warnings li").all_text_contents() == [
        "The translation was stopped at its length limit: its end is missing.",
        "A number of the source is missing in the translation.",
    ]


def test_text_is_never_markup(page):
    text = "<img src=x onerror=alert(1)> <b>dog</b>"
    words = {"source": [[0, 5]], "target": [[0, 5]], "links": [[[0, 5], [0, 5]]], "attention": [[1.0]]}
    line = {"source": text, "flags": [text], "candidates": 2 * [{"text": text, "score": -1}]}
    page.route("**/details", lambda route: route.fulfill(json={"lines": [{**line, "segments": [words]}]}))
    page.fill("#source", text)
    assert translated(page) == text
    assert page.locator("main img, main b").count() == 0


def test_keys_swap_and_copy_and_a_screen_reader_finds_each_part_by_its_name(page):
    page.fill("#source", "The dog sleeps.")
    translated(page)
    for role, name in [
        ("textbox", "Text to translate"), ("combobox", "From"), ("combobox", "To"),
        ("button", "Swap the languages"), ("button", "Copy"), ("status", "Translation"),
        ("heading", "Alternatives"), ("group", "Translation words"),
    ]:  # fmt: skip
        assert page.get_by_role(role, name=name, exact=True).count() == 1, (role, name)
    assert page.locator("#translation").get_attribute("aria-live") == "polite"
    page.keyboard.press("Alt+s")
    assert "There is no model from German" in page.locator("#status").text_content()
    page.keyboard.press("Alt+c")
    page.locator("#status", has_text="translation is selected").or_(
        page.locator("#status", has_text="Copied")
    ).wait_for()


def test_what_was_typed_since_is_not_replaced_by_a_swap(page):
    """A swap replaces the source of the translation that is shown, not a text that was typed since."""
    page.evaluate("languages.push({code: 'de', name: 'German', targets: ['en']})")
    page.evaluate("sourceLang.add(new Option('German', 'de'))")
    page.fill("#source", "The dog sleeps.")
    translated(page)
    page.route("**/details", lambda route: route.fulfill(json={"lines": []}))
    page.fill("#source", "Something else.")
    page.keyboard.press("Alt+s")
    assert page.locator("#source").input_value() == "Something else."


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_it_fits_every_width(page, text):
    page.fill("#source", text)
    translated(page)
    page.click("summary")
    drop(page, f"{'long_name_' * 20}.html", text)
    page.locator("#files a").wait_for()
    for width in (360, 800, 1400):
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        source, target = page.locator("#source").bounding_box(), page.locator("#translation").bounding_box()
        assert (source["y"] == target["y"]) == (width > 704)  # side by side, or one below the other
    is_rtl = page.evaluate("() => getComputedStyle(document.querySelector('#source')).direction")
    assert is_rtl == ("rtl" if text == TEXTS["right to left"] else "ltr")


def drop(page, name, content):
    """Drop a file on the page as the browser does for a person."""
    page.evaluate(
        """([name, content]) => {
          const data = new DataTransfer();
          data.items.add(new File([content], name));
          for (const kind of ["dragover", "drop"])
            document.querySelector("main").dispatchEvent(
              new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
        }""",
        [name, content],
    )


def test_a_file_that_is_dropped_or_chosen_comes_back_translated(page, tiny_run, tmp_path, cli):
    (tmp_path / "in.html").write_text("<p>The <b>dog</b> sleeps.", encoding="utf-8")
    assert cli("translate", tiny_run, "-i", tmp_path / "in.html", "-o", tmp_path / "out.html")[0] == 0
    expected = (tmp_path / "out.html").read_text(encoding="utf-8")
    drop(page, "räume & co.html", "<p>The <b>dog</b> sleeps.")
    page.set_input_files("#file", tmp_path / "in.html")
    for name in ("Download räume _ co_de.html", "Download in_de.html"):
        with page.expect_download() as download:
            page.get_by_role("link", name=name).click()
        assert download.value.path().read_text(encoding="utf-8") == expected
        assert download.value.suggested_filename == name.removeprefix("Download ")
    assert page.locator("#files-status").text_content() == "in.html is translated."


def test_a_file_shows_its_progress_and_why_it_is_not_translated(page):
    lines = ['{"done": 200, "of": 800}\n', '{"error": "the \u003cb> is damaged"}\n']
    page.route(
        "**/translate_file", lambda route: route.fulfill(body="".join(lines), content_type="text/plain")
    )
    seen = "() => { new MutationObserver(() => { window.seen = document.querySelector('progress').value; })"
    page.evaluate(seen + ".observe(document.body, {subtree: true, attributes: true}); }")
    drop(page, "a.html", "x")
    page.locator("#files li", has_text="Not translated: the <b> is damaged.").wait_for()
    assert page.evaluate("() => window.seen") == 200
    page.unroute("**/translate_file")
    drop(page, "a.exe", "x")
    page.locator("#files li", has_text="a.exe Not translated: ").wait_for()
    page.problems.clear()  # the browser itself writes a status of 400 to its console


def test_a_file_can_be_canceled_and_the_next_one_is_translated(page):
    held = []
    page.route("**/translate_file", lambda route: held.append(route) if not held else route.continue_())
    for name in ("a.txt", "b.txt", "c.txt"):
        drop(page, name, "The dog sleeps.")
    page.get_by_role("button", name="Cancel b.txt").click()  # it waits
    page.get_by_role("button", name="Cancel a.txt").click()  # it is at the server
    page.get_by_role("link", name="Download c_de.txt").wait_for()
    assert page.locator("#files .error").all_text_contents() == ["Not translated: canceled."] * 2


def test_the_languages_are_remembered_and_can_stand_in_the_address(browser, served):
    both = [{"code": a, "name": a, "targets": ["de", "en", "fr"]} for a in ("de", "en", "fr")]
    context = browser.new_context()
    context.route("**/languages", lambda route: route.fulfill(json=both))

    def chosen(address):
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("#target-lang option", state="attached")
        return page, [page.locator(f"#{name}-lang").input_value() for name in ("source", "target")]

    page, languages = chosen(served.url)
    assert languages == ["auto", "de"]
    page.select_option("#source-lang", "fr")
    page.select_option("#target-lang", "en")
    assert chosen(served.url)[1] == ["fr", "en"]
    assert chosen(served.url + "/?source=de&target=xx")[1] == ["de", "en"]
    page, languages = chosen(served.url + "/?source=en&target=de&q=The+dog")
    assert languages == ["en", "de"] and page.input_value("#source") == "The dog"
    context.close()


def test_axe_finds_nothing_that_would_shut_people_out(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.fill("#source", "The dog sleeps. A cat sings.")
    translated(page)
    page.click("summary")
    drop(page, "a.html", "<p>The dog sleeps.")
    page.get_by_role("link", name="Download a_de.html").wait_for()
    drop(page, "a.exe", "x")
    page.locator("#files .error").wait_for()
    page.problems.clear()
    for scheme, width in (("light", 360), ("dark", 1000)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 800})
        assert axe.run(page).response["violations"] == [], scheme


def test_the_page_is_four_files_and_no_more():
    assert [route.path for route in page_routes()] == ["/", "/page.css", "/page.js", "/files.js"]
