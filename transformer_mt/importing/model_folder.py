"""From what a user calls a model to the folder of a run: public models are imported once, into the cache."""

import hashlib
import json
import re
from pathlib import Path

from transformer_mt.cache import cache_root
from transformer_mt.config import Config
from transformer_mt.config.public_model import Halves
from transformer_mt.importing.kinds import is_public
from transformer_mt.importing.languages import Languages, UnknownLanguageError
from transformer_mt.locks import wait_for_folder
from transformer_mt.messages import say
from transformer_mt.runs.folder import RunFolder
from transformer_mt.version import __version__

# The files of a model: the key in the cache changes with them, and with nothing else beside them.
_READ = re.compile(r".*\.(json|spm|model|safetensors|npz|yml|bin)|.*vocabulary\.txt")


def run_of(model: str | Path, source: str | None = None, target: str | None = None) -> RunFolder:
    """The run or the export in a folder; that of a public model is in the cache, with these languages where
    it names none.
    """
    folder = Path(model)
    if not is_public(folder):
        return RunFolder(folder)
    return _imported(folder, str(model), Languages(source, target, is_fallback=True))


def parent_of(config: Config) -> RunFolder:
    """The run that the training of a config with `init_from` begins from, downloaded and imported where it is
    a public model.
    """
    parent = config.init_from
    assert parent is not None
    if isinstance(parent, str):
        return run_of(parent, config.data.source_lang, config.data.target_lang)
    if isinstance(parent, Halves):
        from transformer_mt.importing.joined_halves import joined_halves  # imports torch

        return joined_halves(config, parent)
    from transformer_mt.importing.hub_model import fetched

    folder, revision = fetched(parent.huggingface, parent.revision)
    if not is_public(folder):
        return RunFolder(folder)
    languages = Languages(config.data.source_lang, config.data.target_lang, is_fallback=True)
    return _imported(folder, parent.huggingface, languages, revision)


def _imported(folder: Path, name: str, languages: Languages, revision: str | None = None) -> RunFolder:
    """The run in the cache; with these languages only where the model says none."""
    inside = folder if folder.is_dir() else folder.parent
    files = [
        path for path in sorted((*inside.iterdir(), *inside.glob("model/*"))) if _READ.fullmatch(path.name)
    ]
    stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    root = cache_root() / "imported"
    root.mkdir(parents=True, exist_ok=True)
    with wait_for_folder(root):
        outs = []
        for chosen in (Languages(), languages):
            facts = [__version__, str(folder.resolve()), stats, vars(chosen)]
            outs.append(root / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24])
        if existing := next((out for out in outs if out.exists()), None):
            return RunFolder(existing)
        for chosen, out in zip((Languages(), languages), outs):
            try:
                from transformer_mt.importing.import_model import import_model  # imports torch

                import_model(folder, out, name, chosen, revision, lambda: say(f"importing {name}, once"))
                return RunFolder(out)
            except UnknownLanguageError:
                if chosen == languages:
                    raise
    raise AssertionError("one of the two ends the loop")
