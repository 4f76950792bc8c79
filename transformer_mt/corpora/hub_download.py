"""Files of the Hugging Face hub, fetched into the local cache of its library."""

import time
from pathlib import Path
from typing import Literal

from transformer_mt.errors import InputError, WorkError

_TRIES = 5
# Seconds before the second try; twice as long before each later one.
_WAIT = 1.0
_NETWORK_PACKAGES = {"httpx", "httpx2", "httpcore", "httpcore2", "huggingface_hub", "hf_xet", "requests"}


def download(
    repo: str, path: str, revision: str, described: str, kind: Literal["dataset", "model"] = "dataset"
) -> Path:
    """The file in the local cache, downloaded if it is not there; a cut download is resumed. InputError if
    the hub does not have it, WorkError if it cannot be downloaded.
    """
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    cached = huggingface_hub.try_to_load_from_cache(repo, path, revision=revision, repo_type=kind)
    if isinstance(cached, str):
        return Path(cached)
    for attempt in range(_TRIES):
        try:
            return Path(huggingface_hub.hf_hub_download(repo, path, repo_type=kind, revision=revision))
        except LocalEntryNotFoundError as error:  # no connection: the library has tried several times
            cause: BaseException = error.__cause__ or error
            break
        except EntryNotFoundError:
            raise InputError(f"{described}: {path} is not on the hub any more; set `revision`") from None
        except Exception as error:  # the type of network errors depends on the library's version
            if not is_network_error(error):
                raise
            cause = error
        if attempt < _TRIES - 1:
            time.sleep(_WAIT * 2**attempt)
    reason = " ".join(str(cause).split())[:200] or type(cause).__name__
    raise WorkError(
        f"{described}: {path} cannot be downloaded from the hub: {reason}; check the network and run it "
        "again, it resumes"
    )


def is_network_error(error: BaseException) -> bool:
    """True if a connection failed, or the hub refused."""
    return isinstance(error, OSError) or type(error).__module__.split(".")[0] in _NETWORK_PACKAGES
