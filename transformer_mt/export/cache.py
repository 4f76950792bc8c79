"""A run's export made once and kept, for `--engine ctranslate2` on a run's folder."""

import shutil
from pathlib import Path

from transformer_mt.cache import cache_root
from transformer_mt.errors import InputError
from transformer_mt.files import digest
from transformer_mt.messages import say
from transformer_mt.runs.folder import RunFolder
from transformer_mt.translation.engines.ctranslate2_engine import import_ctranslate2


def exported(run: RunFolder) -> Path:
    """The folder of the run's float32 export, made now if these weights were not exported before."""
    run.check_weights()
    # Another version of the exporting code or of CTranslate2 exports again.
    code = Path(__file__).with_name("ctranslate2_spec.py")
    version = import_ctranslate2().__version__
    key = digest(run.weights_file, run.config_file, code)
    folder = cache_root() / "exports" / f"{key}-{version}"
    kept = RunFolder(folder)
    if not (kept.is_export and kept.export_facts_file.exists()):
        shutil.rmtree(folder, ignore_errors=True)  # an incomplete one
        # Imports torch, which the export itself does without
        from transformer_mt.export.export import export
        from transformer_mt.export.to_ctranslate2 import ToCTranslate2

        say(f"exporting {run} to {folder}, once")
        try:
            say(str(export(run, folder, ToCTranslate2(), None)))
        except (InputError, OSError):
            if not kept.export_facts_file.exists():  # another process was faster
                raise
    return folder
