"""Opening of a model: a run's folder, or another model that a companion turns into a run."""

from pathlib import Path
from typing import Any

from transformer_mt.companion import hooks
from transformer_mt.config import Config
from transformer_mt.errors import InputError
from transformer_mt.runs.folder import RunFolder

Languages = tuple[str | None, str | None]
"""The source and target language of a model that names none."""


class UnknownLanguageError(InputError):
    """Neither the model nor the user says its languages."""


def open_model(model: str | Path, source: str | None = None, target: str | None = None) -> RunFolder:
    """The run or the export in a folder. A model of other software is imported by a companion, with these
    languages where it names none.
    """
    return _opened(str(model), (source, target), None) or RunFolder(model)


def parent_of(config: Config) -> RunFolder:
    """The run that the training of a config with `init_from` begins from. InputError if nothing opens it."""
    parent = config.init_from
    assert parent is not None
    if run := _opened(parent, (config.data.source_lang, config.data.target_lang), config):
        return run
    if isinstance(parent, str):
        return RunFolder(parent)
    raise InputError(
        f"`init_from` must be the folder of a run, but is {parent}, and no installed companion opens it"
    )


def _opened(model: Any, languages: Languages, config: Config | None) -> RunFolder | None:
    if isinstance(model, str) and RunFolder(model).config_file.exists():
        return RunFolder(model)
    runs = (open_kind(model, languages, config) for open_kind in hooks("open_model"))
    return next((run for run in runs if run is not None), None)
