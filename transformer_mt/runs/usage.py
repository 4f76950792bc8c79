"""The use of a trained model: the command for its kind."""

import shlex
from pathlib import Path

from transformer_mt.config import Config
from transformer_mt.errors import InputError


def check_translates(config: Config, folder: str | Path) -> None:
    """InputError if the model in this folder was trained on plain text alone."""
    if not config.data.directions:
        raise InputError(
            f"{folder}: must be a model that translates, but was trained for "
            f"{' and '.join(config.data.objectives)}; try: {usage_of(config, str(folder))}"
        )


def usage_of(config: Config, folder: str) -> str:
    """A command, or what to write into a config, for the model in this folder."""
    folder = shlex.quote(folder)
    if config.data.directions:
        return f'translate {folder} "..."'
    if "classification" in config.data.objectives:
        return f'transformer-mt classify {folder} "..."'
    if config.model.kind == "encoder":
        return f'transformer-mt fill {folder} "... [MASK] ..."'
    if config.model.kind == "decoder":
        return f'transformer-mt complete {folder} "..."'
    return f"`init_from: {folder}` in the config of a translation"
