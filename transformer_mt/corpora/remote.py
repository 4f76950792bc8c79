"""Files by URLs such as s3://bucket/name, and files by a pattern, here or there."""

import glob
import re
from itertools import islice
from pathlib import Path
from typing import Any

from transformer_mt.errors import InputError


def is_url(location: str) -> bool:
    """True for a URL, such as s3://bucket/part-*.parquet."""
    return "://" in location


def file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, as fsspec has it, and the path in it."""
    import fsspec  # type: ignore[import-untyped]

    if re.search(r"://[^/@]*:[^/@]+@", url):
        raise InputError(
            f"{url.partition('://')[0]}://...: a URL must not have a password, which would stand in a run "
            "folder; put it where fsspec looks for it (~/.config/fsspec, or variables of the environment)"
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
    """The files that a pattern stands for, in order; a name without *, ? and [ is a pattern for itself.
    InputError without any.
    """
    if is_url(pattern):
        return list(_listed(pattern)) if glob.has_magic(pattern) else [pattern]
    if not glob.has_magic(pattern) or Path(pattern).exists():
        return [pattern]
    return sorted(glob.glob(pattern)) or _refuse(pattern)


def facts_of(pattern: str) -> list[Any]:
    """Facts that change when the files at a URL, or at those that a pattern stands for, do."""
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
