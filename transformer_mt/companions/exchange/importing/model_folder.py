"""Public models and halves of runs as the folders of runs: each is imported once, into the cache."""

import hashlib
import json
import re
from pathlib import Path

from transformer_mt.companions.exchange.importing.foreign_model import Languages
from transformer_mt.companions.exchange.importing.model_kinds import is_public
from transformer_mt.config import Config
from transformer_mt.config.root import Halves, PublicModel
from transformer_mt.files import cache_root, wait_for_folder
from transformer_mt.messages import say
from transformer_mt.run_folder import RunFolder, UnknownLanguageError
from transformer_mt.version import __version__

# The files of a model: the key in the cache changes with them, and with nothing else beside them.
_READ = re.compile(r".*\.(json|spm|model|safetensors|npz|yml|bin)|.*vocabulary\.txt")


FORMAT = 2
"""Format of imported runs in the cache: raise it when importing writes, or reading accepts, other files."""


def open_model(
    model: str | PublicModel | Halves, languages: tuple[str | None, str | None], config: Config | None
) -> RunFolder | None:
    """The run of a public model, or of halves of runs that the training of `config` begins from; None for
    other models. `languages` are used where the model names none.
    """
    if isinstance(model, Halves):
        from transformer_mt.companions.exchange.importing.joined_halves import joined_halves  # imports torch

        assert config is not None
        return joined_halves(config, model)
    folder, name, revision = Path(str(model)), str(model), None
    if isinstance(model, PublicModel):
        from transformer_mt.companions.exchange.importing.hub_model import fetched

        folder, revision = fetched(model.huggingface, model.revision)
        if not is_public(folder):
            return RunFolder(folder)
    elif not is_public(folder):
        return None
    return _imported(folder, name, Languages(*languages, is_fallback=True), revision)


def _imported(folder: Path, name: str, languages: Languages, revision: str | None = None) -> RunFolder:
    """The run in the cache; with these languages only where the model says none."""
    inside = folder if folder.is_dir() else folder.parent
    files = [
        path for path in sorted((*inside.iterdir(), *inside.glob("model/*"))) if _READ.fullmatch(path.name)
    ]
    stats = [(path.name, of.st_size, of.st_mtime_ns, of.st_ctime_ns) for path in files if (of := path.stat())]
    root = cache_root() / "imported"
    root.mkdir(parents=True, exist_ok=True)
    with wait_for_folder(root):
        outs = []
        for chosen in (Languages(), languages):
            facts = [__version__, FORMAT, str(folder.resolve()), stats, vars(chosen)]
            outs.append(root / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24])
        if existing := next((out for out in outs if out.exists()), None):
            return RunFolder(existing)
        for chosen, out in zip((Languages(), languages), outs):
            try:
                from transformer_mt.companions.exchange.importing.import_model import (
                    import_model,  # imports torch
                )

                import_model(folder, out, name, chosen, revision, lambda: say(f"importing {name}, once"))
                return RunFolder(out)
            except UnknownLanguageError:
                if chosen == languages:
                    raise
    raise AssertionError("one of the two ends the loop")
