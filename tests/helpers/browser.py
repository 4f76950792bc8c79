"""A real browser for tests of web pages, and a server for them."""

import functools
import http.server
import shutil
import threading

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


class Static:
    """A server of files that can be stopped, as a network that goes away."""

    def __init__(self, folder):
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
        handler.log_message = lambda *_: None
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()
