"""The documentation as a site: how long its pages are, how they fit a phone, and what its search finds."""

import functools
import http.server
import re
import subprocess
import sys
import threading

import pytest

from tests.conftest import ROOT
from tests.helpers.browser import browser, needs_chromium

pytest.importorskip("zensical")
pytestmark = [needs_chromium, pytest.mark.long]
_ = browser  # a fixture

LONGEST = 9500
"""Pixels of a page at 1,200 pixels of width, with its folded tables closed."""
LONGER = {"how_to/extend": 16_000}
"""A package of examples, file by file."""

SEARCHES = {
    "resume training": "how_to/troubleshoot",
    "GPU memory": "how_to/troubleshoot",
    "own data": "tutorial",
    "attention variants": "explanation/attention",
    "subtitles": "how_to/documents",
    "compare significance": "how_to/compare_systems",
    "fine-tune": "how_to/fine_tune",
    "several GPUs": "how_to/several_gpus",
    "LibreTranslate": "how_to/from_libretranslate",
    "custom attention score": "how_to/extend",
    "learning rate schedule": "reference/config",
    "optimizer": "reference/config",
    "exercise": "explanation/exercises",
    "commercial": "how_to/ship",
    "upgrade": "how_to/ship",
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """(folder, address) of the site."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "scripts/build_site.py", "--out", folder / "site"], cwd=ROOT, check=True)
    handler = functools.partial(Quiet, directory=str(folder / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield folder / "site", f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def pages(folder):
    return [str(path.parent.relative_to(folder)).replace(".", "") for path in folder.rglob("index.html")]


def test_pages_are_short_and_fit_a_phone(site, browser):
    folder, address = site
    page = browser.new_page()
    assert len(pages(folder)) > 40
    limits = ((1200, "scrollHeight", LONGEST), (1200, "scrollWidth", 1200), (360, "scrollWidth", 360))
    too_long = {}
    for width, side, most in limits:
        page.set_viewport_size({"width": width, "height": 800})
        for name in pages(folder):
            page.goto(f"{address}{name}")
            pixels = page.evaluate(f"document.documentElement.{side}")
            if pixels > (LONGER.get(name, most) if side == "scrollHeight" else most):
                too_long[name, side] = pixels
    assert not too_long


def test_the_picture_of_the_transformer_is_there_to_click(site):
    folder, _ = site
    page = folder / "explanation/course/index.html"
    (data,) = re.findall(r'<object[^>]* data="([^"]+)"', page.read_text(encoding="utf-8"))
    assert (page.parent / data).read_text(encoding="utf-8").count("<a href=") > 15


def test_code_has_no_backslash_of_a_table_and_folded_tables_are_tables(site):
    folder, _ = site
    for path in folder.rglob("index.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<code>[^<]*\\\|", text), path
        for inside in re.findall(r"<details[^>]*>(.*?)</details>", text, re.DOTALL):
            is_other = "measurements" in str(path) or "exercises" in str(path)
            assert "|---" not in inside and ("<table" in inside or is_other), path


def test_the_search_finds_the_right_page_among_the_first_three(site, browser):
    _, address = site
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.goto(address)
    missed = {}
    for words, right in SEARCHES.items():
        page.goto(address)
        page.wait_for_load_state("networkidle")
        page.keyboard.press("Control+k")
        page.wait_for_timeout(300)
        page.keyboard.type(words)
        links = []
        for _ in range(30):
            page.wait_for_timeout(100)
            links = [link.get_attribute("href") or "" for link in page.locator("ol a[href]").all()]
            linked = list(
                dict.fromkeys(link.removeprefix(address).split("?")[0].strip("/") for link in links)
            )
            if right in linked[:3]:
                break
        else:
            missed[words] = linked[:3]
    assert not missed
