"""A small server with the chat-completions interface for tests, with the faults of real ones."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_ITEM = re.compile(r"(\d+)\. (.*)")


class ChatServer(ThreadingHTTPServer):
    """`translate` makes the answer of a line; the last lines of a prompt are the text. `faults` are used up
    one by one: a status, (status, headers), or a word below.

    - broken: an answer that is no JSON
    - cut: the connection is closed in the middle of the answer
    - endless: a complete answer that has no end in time
    - error: status 200 with an error
    - length, content_filter: the reason why an answer ends there
    """

    def __init__(self, translate: Callable[[str], str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.translate = translate
        self.faults: list[Any] = []
        self.faults_of: dict[str, Any] = {}
        """The same for the requests that begin with a line, each time."""
        self.asked: list[dict[str, Any]] = []
        """The body of each request."""
        self.keys: set[str | None] = set()
        """The header Authorization of each."""
        self.has_usage = True
        self.tokens = 0
        """Tokens that each answer has more than words."""
        self.wrap: Callable[[str], str] = lambda text: text
        """Changes each answer as a whole."""
        self.message = ""
        """The message of answers with other statuses than 200."""
        self.at_once = self.most_at_once = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def lines(self) -> list[str]:
        """Every line that was asked for."""
        return [line for body in self.asked for line in lines_of(body["messages"][0]["content"])]

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that are killed close their connections."""


def lines_of(prompt: str) -> list[str]:
    text = prompt.rpartition("\n\n")[2].split("\n")
    items = [_ITEM.fullmatch(line) for line in text]
    return [item[2] for item in items if item] if all(items) else text


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.asked.append(body)
        server.keys.add(self.headers.get("Authorization"))
        server.at_once += 1
        server.most_at_once = max(server.most_at_once, server.at_once)
        first = lines_of(body["messages"][0]["content"])[0]
        fault = server.faults.pop(0) if server.faults else server.faults_of.get(first)
        try:
            if self.path != "/v1/chat/completions":
                self._answer(404, {"error": {"message": f"no {self.path} here"}})
            elif isinstance(fault, int | tuple):
                status, headers = (fault, {}) if isinstance(fault, int) else fault
                message = server.message or f"status {status} on purpose"
                self._answer(status, {"error": {"message": message}}, headers)
            else:
                self._complete(body["messages"][0]["content"], fault)
        finally:
            server.at_once -= 1

    def _complete(self, prompt: str, fault: str | None) -> None:
        lines = lines_of(prompt)
        is_numbered = prompt.rpartition("\n\n")[2] != lines[0]
        translated = [self.server.translate(line) for line in lines]
        text = "\n".join(f"{i}. {t}" for i, t in enumerate(translated, 1)) if is_numbered else translated[0]
        finish = fault if fault in ("length", "content_filter") else "stop"
        message = {"role": "assistant", "content": self.server.wrap(text)}
        answer = {"choices": [{"index": 0, "finish_reason": finish, "message": message}]}
        if self.server.has_usage:
            answer["usage"] = {
                "prompt_tokens": len(prompt.split()),
                "completion_tokens": len(text.split()) + self.server.tokens,
            }
        if fault == "endless":
            time.sleep(3)
        if fault == "error":
            answer = {"error": {"message": "overloaded"}}
        self._answer(200, "no JSON" if fault == "broken" else answer, cut=fault == "cut")

    def _answer(self, status: int, body: object, headers: Any = (), cut: bool = False) -> None:
        content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut else content)

    def log_message(self, *arguments: object) -> None:
        """Nothing is logged."""


@contextmanager
def chat_server(translate: Callable[[str], str]) -> Iterator[ChatServer]:
    server = ChatServer(translate)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
