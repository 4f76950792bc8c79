"""From what a user calls a model to the folder of a run: public models are imported once, into the cache."""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.cache import cache_root
from transformer_mt.config import Config
from transformer_mt.importing.kinds import is_public
from transformer_mt.locks import wait_for_folder
from transformer_mt.messages import say
from transformer_mt.runs.folder import RunFolder
from transformer_mt.version import __version__

if TYPE_CHECKING:
    from transformer_mt.importing.import_model import Languages


def run_of(model: str | Path, source: str | None = None, target: str | None = None) -> RunFolder:
    """The run or the export in a folder; that of a public model is in the cache, with these languages where
    it names none.
    """
    folder = Path(model)
    if not is_public(folder):
        return RunFolder(folder)
    from transformer_mt.importing.import_model import Languages  # imports torch

    return _imported(folder, str(model), Languages(source, target, is_fallback=True))


def parent_of(config: Config) -> RunFolder | None:
    """The run that the config's training begins from, downloaded and imported where it is a public model."""
    parent = config.init_from
    if parent is None:
        return None
    if isinstance(parent, str):
        return run_of(parent)
    from transformer_mt.importing.hub_model import fetched
    from transformer_mt.importing.import_model import Languages

    folder, revision = fetched(parent.huggingface, parent.revision)
    if not is_public(folder):
        return RunFolder(folder)
    languages = Languages(config.data.source_lang, config.data.target_lang, is_fallback=True)
    return _imported(folder, parent.huggingface, languages, revision)


def _imported(
    folder: Path, name: str, languages: "Languages | None" = None, revision: str | None = None
) -> RunFolder:
    inside = folder if folder.is_dir() else folder.parent
    files = [path for path in sorted(inside.rglob("*")) if path.is_file()]
    stats = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    facts = [__version__, str(folder.resolve()), stats, vars(languages) if languages else None]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
    out = cache_root() / "imported" / key
    out.parent.mkdir(parents=True, exist_ok=True)
    with wait_for_folder(out.parent, lambda: None):
        if not out.exists():
            from transformer_mt.importing.import_model import Languages, import_model  # imports torch

            say(f"importing {name}, once")
            import_model(folder, out, name, languages or Languages(), revision)
    return RunFolder(out)
