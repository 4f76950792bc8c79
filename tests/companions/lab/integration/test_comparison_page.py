"""The page of `transformer-mt compare --html`, in a real browser."""

import json
import re

import pytest

from tests.companions.lab.integration.test_compare import SOURCES, files
from tests.helpers.browser import browser, needs_chromium, watched_page

__all__ = ["browser", "files"]
pytestmark = needs_chromium


@pytest.fixture
def page(browser, files, tmp_path, cli):
    status, _, _ = cli(
        "compare", "bad.txt", "good.txt", *files, "--metrics", "chrF,WER", "--html", "page.html"
    )
    assert status == 0
    page = watched_page(browser, viewport={"width": 1200, "height": 900})
    page.goto((tmp_path / "page.html").as_uri())
    yield page
    assert page.problems == [] and len(page.asked) == 1  # the page and nothing else
    page.close()


def shown(page):
    return [item.locator("dd").first.text_content() for item in page.locator("#sentences li").all()]


def test_the_table_and_the_sentences_are_there_with_marked_differences(page):
    assert re.search(r"good\s*\d\d\.\d\d \[", page.locator("table").first.inner_text())
    assert sorted(shown(page)) == sorted(SOURCES)
    assert page.locator("#count").text_content() == "4 of 4 sentences"
    # The last one is the only one that the second system has worse
    assert shown(page)[0] == SOURCES[3]
    # Markup in a translation is text
    assert page.get_by_text("Der Hund <b>schläft</b>.").count() == 1 and page.locator("dd b").count() == 0
    item = page.locator("#sentences li", has_text=SOURCES[3])
    assert item.locator("mark").all_text_contents() == ["Das"]
    page.select_option("#against", "first")
    item = page.locator("#sentences li", has_text=SOURCES[2])
    assert item.locator("mark").all_text_contents() == ["alte", "im", "Garten"]


def test_the_order_goes_by_the_difference_of_the_scores(page):
    page.select_option("#order", "text")
    assert shown(page) == SOURCES
    page.select_option("#order", "better")
    best = shown(page)
    assert best[-1] == SOURCES[3] and set(best[:3]) == set(SOURCES[:3])
    page.select_option("#metric", label="WER")  # of which less is better
    assert shown(page)[-1] == SOURCES[3]


def test_a_search_and_a_filter_find_sentences(page):
    page.fill("#search", "kATZE")
    assert shown(page) == [SOURCES[1]]
    page.fill("#search", "")
    page.select_option("#only", label="with a number missing")
    assert shown(page) == [SOURCES[1]] and "(a number missing)" in page.locator("#sentences").text_content()
    page.select_option("#only", "different")
    page.select_option("#first", label="good")
    assert page.locator("#count").text_content() == "0 of 4 sentences"


def test_scores_by_part_and_lengths_and_flags_on_a_phone_and_by_keyboard(page):
    tables = [table.inner_text() for table in page.locator("#parts table").all()]
    assert "chrF by words of the source" in tables[0] and "1–5" in tables[0] and "6–10" in tables[0]
    assert "rarest word in the test set" in tables[1] and "ratio" in tables[2]
    assert re.search(r"a number missing\s+1\s+0", tables[3])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "test"
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_nothing_is_suspected_of_what_is_no_language(browser, files, tmp_path, cli):
    words = ("--source", "src.txt", "--reference", "ref.txt", "--target-lang", "phonemes", "--metrics", "WER")
    cli("compare", "bad.txt", "good.txt", *words, "--html", "page.html")
    page = watched_page(browser)
    page.goto((tmp_path / "page.html").as_uri())
    assert "a number missing" not in page.locator("body").inner_text()
    page.close()


def test_fifty_sentences_are_shown_at_a_time(browser, tmp_path, cli):
    rows = [{"source": f"w{i}", "reference": f"r{i}", "translation": f"</script>t{i}"} for i in range(120)]
    file = tmp_path / "many.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    cli("compare", file, "--target-lang", "de", "--html", tmp_path / "p.html", "--metrics", "chrF")
    page = watched_page(browser)
    page.goto((tmp_path / "p.html").as_uri())
    assert page.locator("#sentences li").count() == 50
    page.click("#more")
    page.click("#more")
    assert page.locator("#sentences li").count() == 120 and not page.locator("#more").is_visible()
    assert page.problems == []
    page.close()
