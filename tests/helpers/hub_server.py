"""A small server that speaks the protocol of the Hugging Face hub for one data set or model, with faults."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "a" * 40
NAME = "wmt/mini"
MODEL = "Helsinki-NLP/opus-mt-en-de"


class HubServer(ThreadingHTTPServer):
    """`files` of the data set, by path, or of the model with `kind` models; `changes` are a model's proposed
    ones, by author. `faults` are used up one by one, by downloads of large files: a status, ("cut", bytes
    sent before the connection closes), or ("size", the size that the server says).
    """

    def __init__(self, files: dict[str, bytes], kind: str = "datasets") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files, self.faults, self.kind = files, [], kind
        self.changes: dict[str, dict[str, bytes]] = {}
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
        if self.server.kind == "models":
            self._of_model(path)
            return
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

    def _of_model(self, path: str) -> None:
        api, resolve = f"/api/models/{MODEL}", f"/{MODEL}/resolve/"
        authors = list(self.server.changes)
        if path == f"{api}/discussions":
            changes = [
                {"title": "a copy", "num": i, "author": {"name": name}, "status": "open",
                 "repo": {"name": MODEL, "type": "model"}, "isPullRequest": True,
                 "createdAt": "2026-01-01T00:00:00.000Z"}
                for i, name in enumerate(authors)
            ]  # fmt: skip
            self._json({"discussions": changes, "start": 0, "count": len(changes), "numClosedDiscussions": 0})
        elif path == api or path.startswith(f"{api}/revision/"):
            self._model_info(path.removeprefix(api).removeprefix("/revision/"))
        elif path.startswith(resolve):
            commit, name = path.removeprefix(resolve).split("/", 1)
            files = self.server.files if commit == COMMIT else self.server.changes[authors[int(commit, 16)]]
            self._file(name, files, commit)
        else:
            self._answer(404, b"{}", X_Error_Code="RepoNotFound")

    def _model_info(self, revision: str) -> None:
        """Of a proposed change the commit is its number."""
        files, commit = self.server.files, COMMIT
        if revision.startswith("refs/pr/"):
            number = int(revision.removeprefix("refs/pr/"))
            files, commit = list(self.server.changes.values())[number], f"{number:040x}"
        elif revision not in ("", "main", COMMIT):
            self._answer(404, b"{}", X_Error_Code="RevisionNotFound")
            return
        siblings = [{"rfilename": name} for name in files]
        self._json({"_id": "1", "id": MODEL, "sha": commit, "siblings": siblings, "tags": []})

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

    def _file(self, name: str, files: dict[str, bytes] | None = None, commit: str = COMMIT) -> None:
        content = (self.server.files if files is None else files).get(name)
        if content is None:
            self._answer(404, b"", X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
            return
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X_Repo_Commit": commit}
        if self.command == "HEAD" or not name.endswith((".parquet", ".safetensors")):
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
def serving(files: dict[str, bytes], kind: str = "datasets") -> Iterator[HubServer]:
    with HubServer(files, kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
