"""A small server that speaks the protocol of the Hugging Face hub for one data set, with faults."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "a" * 40
NAME = "wmt/mini"


class HubServer(ThreadingHTTPServer):
    """`files` of the data set, by path. `faults` are used up one by one, by downloads of parquet files: a
    status, ("cut", bytes sent before the connection closes), or ("size", the size that the server says).
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files, self.faults = files, []
        self.fetched: list[tuple[str, str | None]] = []
        """(path, Range) of each download of a parquet file."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        api, resolve = f"/api/datasets/{NAME}", f"/datasets/{NAME}/resolve/"
        if path == api or path.startswith(f"{api}/revision/"):
            siblings = [{"rfilename": name} for name in self.server.files]
            self._json({"_id": "1", "id": NAME, "sha": COMMIT, "siblings": siblings, "tags": []})
        elif path.startswith(f"{api}/tree/{COMMIT}"):
            self._tree(path.removeprefix(f"{api}/tree/{COMMIT}").strip("/"))
        elif path.startswith(resolve):
            self._file(path.removeprefix(resolve).split("/", 1)[1])
        else:
            self._answer(404, b"{}")

    do_HEAD = do_POST = do_GET

    def _tree(self, folder: str) -> None:
        entries: dict[str, dict] = {}
        for name, content in self.server.files.items():
            if folder and not name.startswith(f"{folder}/"):
                continue
            rest = name.removeprefix(f"{folder}/") if folder else name
            path = "/".join(filter(None, [folder, rest.split("/")[0]]))
            size = 0 if "/" in rest else len(content)
            kind = "directory" if "/" in rest else "file"
            entries[path] = {"type": kind, "oid": "b" * 40, "size": size, "path": path}
        self._json(list(entries.values()))

    def _file(self, name: str) -> None:
        content = self.server.files.get(name)
        if content is None:
            self._answer(404, b"", X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
            return
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X_Repo_Commit": COMMIT}
        if self.command == "HEAD" or not name.endswith(".parquet"):
            self._answer(200, content, **headers)
            return
        wanted = self.headers.get("Range")
        self.server.fetched.append((name, wanted))
        fault = self.server.faults.pop(0) if self.server.faults else None
        if isinstance(fault, int):
            self._answer(fault, b"{}")
            return
        begin = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
        if begin:
            headers["Content_Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        rest = content[begin:]
        if fault and fault[0] == "size":
            rest = content[: fault[1]]
        self._answer(
            206 if begin else 200, rest, fault[1] if fault and fault[0] == "cut" else None, **headers
        )

    def _json(self, value: object) -> None:
        self._answer(200, json.dumps(value).encode(), Content_Type="application/json")

    def _answer(self, status: int, content: bytes, cut: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:cut])
        self.close_connection = cut is not None

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[HubServer]:
    with HubServer(files) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
