"""The folder in which an export is written until it has been proven."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def unproven_folder(out: Path) -> Iterator[Path]:
    """A hidden folder next to `out`. Unless it becomes `out`, it is removed at the end, together with the
    parents of `out` that were created for it.
    """
    made = [folder for folder in out.parents if not folder.exists()]
    out.parent.mkdir(parents=True, exist_ok=True)
    unproven = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield unproven
    finally:
        shutil.rmtree(unproven, ignore_errors=True)
        if not out.exists():
            with contextlib.suppress(OSError):  # somebody else may have put something there
                for folder in made:
                    folder.rmdir()
