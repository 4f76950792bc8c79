"""Remote files of corpora: files read from the URLs of stores, and downloads that are kept."""

import glob
import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import DISK_ERRORS, fsync, wait_for_folder, write_text
from transformer_mt.messages import show_progress


def is_url(location: str) -> bool:
    """True for a URL, such as s3://bucket/part-*.parquet."""
    return "://" in location


def file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, as fsspec has it, and the path in it."""
    import fsspec  # type: ignore[import-untyped]

    if re.search(r"://[^/@]*:[^/@]+@", url):
        raise InputError(
            f"{url.partition('://')[0]}://...: a URL must not have a password, which would be stored in the "
            "run's folder; put it where fsspec looks for it (~/.config/fsspec, or environment variables)"
        )
    try:
        files, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        raise InputError(
            f"{url}: its kind of store needs a package: {error}; for s3:// install the extra: "
            'pip install "transformer-mt[s3]"'
        ) from None
    return files, path


def matching(pattern: str) -> list[str]:
    """The files that match a pattern, in order; a name without *, ? and [ stands for itself. InputError if
    none match.
    """
    if is_url(pattern):
        return list(_listed(pattern)) if glob.has_magic(pattern) else [pattern]
    if not glob.has_magic(pattern) or Path(pattern).exists():
        return [pattern]
    return sorted(glob.glob(pattern)) or _refuse(pattern)


def facts_of(pattern: str) -> list[Any]:
    """Facts that change when the file at a URL, or any file that matches a pattern, changes."""
    facts = []
    for url, info in _listed(pattern).items():
        keys = (key for key in ("ETag", "etag", "mtime", "LastModified", "updated") if key in info)
        facts.append([url, info["size"], *(str(info[key]) for key in islice(keys, 1))])
    return facts


def _listed(pattern: str) -> dict[str, Any]:
    """Metadata of each matching file in the store, sorted by URL, from as few requests as possible."""
    files, path = file_system(pattern)
    if not glob.has_magic(pattern):
        return {pattern: _asked(lambda: files.info(path), pattern)}
    infos = _asked(lambda: files.glob(path, detail=True), pattern)
    return {files.unstrip_protocol(name): infos[name] for name in sorted(infos)} or _refuse(pattern)


def _refuse(pattern: str) -> Any:
    raise InputError(f"{pattern}: must match at least one file, but matches none")


def open_file(url: str) -> Any:
    """The file at a URL, to read bytes from."""
    files, path = file_system(url)
    return _asked(lambda: files.open(path, "rb"), url)


def _asked(ask: Any, url: str) -> Any:
    try:
        return ask()
    except FileNotFoundError:
        raise InputError(f"{url}: no such file") from None
    except Exception as error:  # its type depends on the kind of store
        raise InputError(f"{url}: cannot be read: {error}; check the address and the network") from None


_TRIES = 6
# Seconds to wait before the second try; twice as long before each later one.
_WAIT = 1.0
_TIMEOUT = 60.0
_BLOCK = 1 << 20
# HTTP statuses that may be temporary.
_WORTH_ANOTHER_TRY = {408, 416, 429, 500, 502, 503, 504}


def fetch_json(url: str, query: Mapping[str, str], what: str) -> Any:
    """The JSON that a web service answers. `what` names it in errors."""
    address = f"{url}?{urllib.parse.urlencode(query)}"
    for attempt in range(_TRIES):
        try:
            with _open(address, {}) as answer:
                return json.loads(answer.read())
        except (json.JSONDecodeError, UnicodeDecodeError):
            raise WorkError(f"{what}: {url} must answer with JSON, but does not; try again later") from None
        except (OSError, http.client.HTTPException) as error:
            _wait_or_fail(error, attempt, what, url)
    raise AssertionError


def download(url: str, file: Path, what: str, is_whole: Callable[[Path], bool]) -> Path:
    """Download `url` to `file` unless it is there; a download that was cut is resumed. `what` names it in
    errors and on the progress bar; `is_whole` says whether the content is what it should be.
    """
    if file.exists():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    with wait_for_folder(file.parent):
        if file.exists():  # another process fetched it while this one waited
            return file
        part = file.with_name(f"{file.name}.part")
        _fetch_all(url, part, what)
        if not is_whole(part):
            part.unlink()
            raise WorkError(
                f"{what}: the data from {url} are damaged; run the command again, or tell who offers them"
            )
        fsync(part)
        part.rename(file)
        _mark(part).unlink(missing_ok=True)
    return file


def _fetch_all(url: str, part: Path, what: str) -> None:
    attempt = 0
    while True:
        begun = _size(part)
        try:
            return _fetch(url, part, what)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno in DISK_ERRORS:
                raise
            if isinstance(error, urllib.error.HTTPError) and error.code == 416:
                part.unlink(missing_ok=True)  # already complete: the process was killed before the rename
            # Retry without a pause as long as each try gets more of the file.
            attempt = 0 if _size(part) > begun else attempt + 1
            if attempt:
                _wait_or_fail(error, attempt - 1, what, url)


def _fetch(url: str, part: Path, what: str) -> None:
    """Download the rest of the file. OSError or HTTPException if the connection ends before that."""
    begun = _size(part)
    mark = _mark(part).read_text(encoding="utf-8") if begun and _mark(part).exists() else ""
    # If-Range: the server sends the whole file if it has changed.
    headers = {"Range": f"bytes={begun}-", "If-Range": mark} if mark else {}
    with _open(url, headers) as answer:
        if answer.status != 206:
            begun = 0
        mark = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
        write_text(_mark(part), "" if mark.startswith("W/") else mark)
        length = answer.headers.get("Content-Length")
        total = None if length is None else begun + int(length)
        with (
            part.open("r+b" if begun else "wb") as output,
            show_progress(None, f"downloading {what}", total, begun, "bytes") as bar,
        ):
            output.seek(begun)
            output.truncate()
            while block := answer.read(_BLOCK):
                output.write(block)
                bar.update(len(block))
        if total is not None and _size(part) != total:
            raise http.client.IncompleteRead(b"", total - _size(part))


def _open(url: str, headers: Mapping[str, str]) -> Any:
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise InputError(f"{url}: is not an address that begins with https://")
    request = urllib.request.Request(url, headers={"User-Agent": "transformer-mt", **headers})
    return urllib.request.urlopen(request, timeout=_TIMEOUT)


def _wait_or_fail(error: Exception, attempt: int, what: str, url: str) -> None:
    """Wait before the next try; InputError if none can help, WorkError after the last."""
    if isinstance(error, urllib.error.HTTPError) and error.code not in _WORTH_ANOTHER_TRY:
        raise InputError(
            f"{what}: {url} answers {error.code} ({error.reason}); check the name and the version"
        ) from None
    if attempt == _TRIES - 1:
        reason = getattr(error, "reason", None) or error
        raise WorkError(
            f"{what}: cannot be downloaded from {url}: {reason}; check the network and run it again, "
            "it resumes"
        ) from None
    time.sleep(_WAIT * 2**attempt)


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _mark(part: Path) -> Path:
    """Path of the file that holds the download's ETag or Last-Modified header."""
    return part.with_name(f"{part.name}.mark")
