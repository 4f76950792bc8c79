"""Handlers of files that are translated, and translated files that wait to be fetched."""

import asyncio
import re
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from transformer_mt.companions.documents.formats import DOCUMENT_FORMATS, KEEP_SOURCES
from transformer_mt.companions.documents.read import Document, read_document
from transformer_mt.companions.serving.http.admission import Admission
from transformer_mt.companions.serving.http.info_routes import chain_of, detect_source, with_known_codes
from transformer_mt.companions.serving.http.requests import (
    FileBody,
    answer,
    json_bytes,
    or_http_error,
    parse_file,
    read_body,
    until_disconnect,
)
from transformer_mt.companions.serving.models import Directions
from transformer_mt.companions.serving.text_translation import Progress, translate_document
from transformer_mt.errors import InputError
from transformer_mt.text.file_formats import format_of

_SECONDS = 1800.0
"""A file can be fetched for half an hour."""
_MOST = 1000
"""Files that are kept: with more, the oldest are removed before another is added."""
_NAME_BYTES = 150
"""Bytes of a file's own name that are kept."""
_NO_NAME = re.compile(r"[^\w. -]+")


def _new_folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="transformer_mt-files-", ignore_cleanup_errors=True)


class TranslatedFiles:
    """Files by names that nobody can guess, in a folder that ends with the server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most_bytes: int = 1_000_000_000) -> None:
        """The oldest files are removed if all files together have more than `most_bytes`."""
        self._clock, self._most_bytes = clock, most_bytes
        self._folder = _new_folder()
        self._kept: dict[str, tuple[float, int]] = {}
        """The time and the size of each file, the oldest first."""
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()  # files are added in threads

    def add(self, content: bytes, name: str, target: str) -> str:
        """Keep the translation of a file of this name. Returns the name that it is fetched by."""
        path = PurePath(name.replace("\\", "/"))
        stem = _NO_NAME.sub("_", path.stem).encode()[:_NAME_BYTES].decode(errors="ignore")
        kept = f"{stem.strip('. ') or 'file'}_{target}{_NO_NAME.sub('', path.suffix)}"
        key = f"{secrets.token_urlsafe(16)}.{kept}"
        with self._lock:
            if not Path(self._folder.name).is_dir():  # a cleaner of /tmp has removed it
                self._folder, self._kept = _new_folder(), {}
        path = Path(self._folder.name) / key
        try:
            path.write_bytes(content)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        with self._lock:
            self._forget()
            self._kept[key] = self._clock(), len(content)
            self._forget_in_time()
        return key

    def close(self) -> None:
        """Remove all files."""
        if self._timer is not None:
            self._timer.cancel()
        self._folder.cleanup()

    def _forget_in_time(self) -> None:
        """Set a timer that removes expired files even if no request comes: they are somebody's texts."""
        if self._timer is None and self._kept:
            self._timer = threading.Timer(_SECONDS + 1, self._time_is_over)
            self._timer.daemon = True
            self._timer.start()

    def _time_is_over(self) -> None:
        with self._lock:
            self._timer = None
            self._forget()
            self._forget_in_time()

    def find(self, name: str) -> tuple[Path, str] | None:
        """The file and its readable name; None if there is no such file, or no longer."""
        with self._lock:
            self._forget()
            if name not in self._kept:
                return None
        return Path(self._folder.name) / name, name.partition(".")[2]

    def _forget(self) -> None:
        """Remove the files whose time is over, and the oldest where they are too many or too large."""
        old, size = self._clock() - _SECONDS, sum(size for _, size in self._kept.values())
        for name, (added, length) in list(self._kept.items()):
            if len(self._kept) < _MOST and size <= self._most_bytes and added >= old:
                return
            size -= length
            del self._kept[name]
            (Path(self._folder.name) / name).unlink(missing_ok=True)


_FILES_AT_ONCE, _UPLOADS = 2, 20
"""Most files translated at the same time, and most files in memory; further files wait."""
_UNKNOWN_UPLOADS = 10
"""Most files in memory from clients without a valid key in the headers: a key in the form can be read only
once the file has arrived.
"""
_MOST_XML = 10_000_000
"""Most bytes of XML in an office document, or `file_bytes` if that is more: the pieces take ninety times as
much memory.
"""
_FORM_BYTES = 10_000
"""Bytes that a form may have besides its file."""
_DETECTED_CHARACTERS = 10_000
"""Characters of a file by which its language is found."""
_SAYS_ITS_LANGUAGE = ("html", "epub")
"""Formats whose attributes are not translated if the page says that it is not in the source language."""
_LINES = "application/x-ndjson"
_READING = 60
"""Seconds that a file may take to read."""
_HEARTBEAT = 15.0
"""Seconds after which the last line of progress is sent again."""


class FileRoutes:
    """POST /translate_file and GET /download_file."""

    def __init__(self, directions: Directions, admission: Admission, files: TranslatedFiles) -> None:
        self._directions, self._admission, self._files = directions, admission, files
        self._uploads, self._turns = asyncio.Semaphore(_UPLOADS), asyncio.Semaphore(_FILES_AT_ONCE)
        self._unknown_uploads = asyncio.Semaphore(_UNKNOWN_UPLOADS)
        # Threads of their own: a large document takes seconds.
        self._readers = ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="read")

    async def translate(self, request: Request) -> Response:
        """Translate a file of any format. The answer has the URL of the translation. With `Accept:
        application/x-ndjson`, lines of progress come first: {"done": texts, "of": texts}.
        """
        most = self._admission.limits.file_bytes
        if not most:
            raise HTTPException(403, "this server does not translate files")
        async with AsyncExitStack() as held:
            is_known = self._admission.knows(request)
            await held.enter_async_context(self._uploads if is_known else self._unknown_uploads)
            body = await read_body(request, self._admission.limits, most + _FORM_BYTES)
            form, raw, name = await parse_file(request, body)
            del body
            self._admission.admit_client(request, form.api_key)
            form = with_known_codes(self._directions, form)
            if _LINES in request.headers.get("accept", ""):
                lines = self._lines(request, form, raw, name, held.pop_all())
                headers = {"X-Accel-Buffering": "no"}  # or nginx would keep the lines back
                return StreamingResponse(lines, headers=headers, media_type=_LINES)
            work = self._translated(request, form, raw, name, lambda done, of: None)
            return answer(await until_disconnect(request, or_http_error(work), None))

    async def download(self, request: Request) -> Response:
        file = self._files.find(request.path_params["name"])
        if file is None:
            raise HTTPException(404, "there is no such file; files are kept for half an hour")
        headers = {"X-Content-Type-Options": "nosniff"}
        return FileResponse(file[0], filename=file[1], headers=headers)

    async def _lines(
        self, request: Request, form: FileBody, raw: bytes, name: str, held: AsyncExitStack
    ) -> AsyncIterator[bytes]:
        """The progress, line by line, and the answer or the error."""
        news: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

        async def work() -> dict[str, Any]:
            try:
                return await self._translated(
                    request, form, raw, name, lambda done, of: news.put_nowait({"done": done, "of": of})
                )
            finally:
                news.put_nowait(None)

        last: dict[str, Any] | None = {"done": 0, "of": 0}
        async with held:
            task = asyncio.ensure_future(or_http_error(work()))
            try:
                while last is not None:
                    with suppress(TimeoutError):  # proxies close connections that send nothing
                        last = await asyncio.wait_for(news.get(), _HEARTBEAT)
                    if last is not None:
                        yield json_bytes(last) + b"\n"
                try:
                    yield json_bytes(await task) + b"\n"
                except HTTPException as error:
                    yield json_bytes({"error": error.detail}) + b"\n"
            finally:  # also when the client has gone
                task.cancel()
                with suppress(asyncio.CancelledError, HTTPException):
                    await task

    async def _translated(
        self, request: Request, form: FileBody, raw: bytes, name: str, progress: Progress
    ) -> dict[str, Any]:
        """Translate a file, and keep the translation to be fetched. Returns the answer."""
        try:
            format = format_of([DOCUMENT_FORMATS], name, None, may_set=False)
        except InputError as error:
            raise HTTPException(400, str(error)) from None

        async def read(content: bytes, source: str) -> Document:
            languages = source, form.target
            most = max(_MOST_XML, self._admission.limits.file_bytes)
            stop = threading.Event()
            work = partial(read_document, content, format, languages, name, most_bytes=most, stop=stop)
            reading = asyncio.get_running_loop().run_in_executor(self._readers, work)
            try:
                return await asyncio.wait_for(reading, _READING)
            except TimeoutError:
                raise HTTPException(400, f"{name}: takes more than {_READING} seconds to read") from None
            finally:  # also when the client has gone
                stop.set()

        async with self._turns, AsyncExitStack() as used:
            document, source, content = await read(raw, form.source), form.source, raw
            if source == "auto":
                text = "\n".join(text.text for text in document.texts)[:_DETECTED_CHARACTERS]
                source = detect_source(self._directions, text, form.target)["language"]
                if format in _SAYS_ITS_LANGUAGE:
                    document = await read(raw, source)
            chain = chain_of(self._directions, source, form)
            if chain.pivot and format in KEEP_SOURCES:
                raise HTTPException(
                    400,
                    f"there must be a model from {source} to {form.target} for {format}, but there is none",
                )
            remarks = document.remarks
            # Load all models now, so that none is unloaded before the last one has finished.
            batchers = [await used.enter_async_context(model.loaded()) for model in chain.models]
            for step, batcher in enumerate(batchers):
                document = await read(content, source) if step else document
                content = await translate_document(batcher, document, form.request_options, progress)
        kept = await asyncio.to_thread(self._files.add, content, name, form.target)
        url = str(request.url_for("download_file", name=quote(kept)))
        reply = {"translatedFileUrl": url, "remarks": remarks, "pivotLanguage": chain.pivot}
        return {key: value for key, value in reply.items() if value}
