"""A small web server for tests: files by path, byte ranges, and faults on request."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class FileServer(ThreadingHTTPServer):
    """`files` are served by their path; `faults` are used up one by one, by requests for files.

    An int is a status to answer with; ("cut", n) sends n bytes and closes; ("short", n) says that the file
    has n bytes; ("changed",) gives the file another ETag.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.answers: dict[str, object] = {}
        """Path -> a function of the query that gives the bytes of an answer."""
        self.faults: list = []
        self.requests: list[tuple[str, str | None]] = []
        """(path, Range) of each request for a file."""
        self.etag = '"1"'

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if path in self.server.answers:
            content = self.server.answers[path]({key: values[0] for key, values in query.items()})
            self._answer(200, content)
            return
        self.server.requests.append((path, self.headers.get("Range")))
        fault = self.server.faults.pop(0) if self.server.faults else None
        if isinstance(fault, int):
            self._answer(fault, b"fault")
        elif path not in self.server.files:
            self._answer(404, b"")
        else:
            self._send(self.server.files[path], fault)

    def _send(self, content: bytes, fault: tuple | None) -> None:
        begin = 0
        if fault == ("changed",):
            self.server.etag = '"2"'
        wanted = self.headers.get("Range")
        if wanted and self.headers.get("If-Range") == self.server.etag:
            begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if begin and begin >= len(content):
            self._answer(416, b"")
            return
        rest = content[begin:]
        if fault and fault[0] == "short":
            rest = content[: fault[1]]
        self.send_response(206 if begin else 200)
        self.send_header("ETag", self.server.etag)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: fault[1]] if fault and fault[0] == "cut" else rest)
        self.close_connection = True

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[FileServer]:
    with FileServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
