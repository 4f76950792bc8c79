"""A real browser for tests of web pages."""

import shutil

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium; install the package chromium"
)


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        # Chromium's own sandbox cannot be set up in a container where all is root.
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


def watched_page(browser, **settings):
    """A new page that notes what goes wrong in `problems`, and what it asks for in `asked`."""
    page = browser.new_page(**settings)
    page.problems, page.asked = [], []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("console", lambda entry: page.problems.append(entry.text) if entry.type == "error" else None)
    page.on("request", lambda request: page.asked.append(request.url))
    return page
