"""The export that is part of a run's folder: where a CPU translates, commands search with it."""

import importlib.util
import shutil

from transformer_mt.errors import InputError, WorkError
from transformer_mt.messages import say
from transformer_mt.run_folder import RunFolder


def make_own_export(run: RunFolder, is_asked: bool = False) -> None:
    """Export the run's model into its folder if its config (`train.export`) or the user asks, unless it is
    there or CTranslate2 is not installed. If it cannot be, or fails its proof,
    one line says why, and the run translates with torch.
    """
    config = run.config()
    if not ((config.train.export or is_asked) and config.data.directions):
        return
    if importlib.util.find_spec("ctranslate2") is None or run.own_export is not None:
        return
    shutil.rmtree(run.export_folder, ignore_errors=True)  # of other weights
    from transformer_mt.companions.exchange.export.export import export
    from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2

    try:
        proof = export(run, run.export_folder, ToCTranslate2(), None)
    except (InputError, WorkError, OSError) as error:
        say(f"note: {run} will translate with torch alone: {str(error).splitlines()[0]}")
    else:
        say(f"{run.export_folder}: to translate on CPUs; {proof}")
