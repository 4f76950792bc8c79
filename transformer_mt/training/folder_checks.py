"""Checks that a run's folder, its config and its checkpoint fit one another."""

from pathlib import Path
from tempfile import TemporaryFile

from transformer_mt.config import Config
from transformer_mt.data.vocabulary.tokenizer import Tokenizer, tokenizer_files
from transformer_mt.errors import InputError, Setting
from transformer_mt.runs.folder import RunFolder
from transformer_mt.settings.language import check_language
from transformer_mt.training.state.config_changes import report_changes


def check_folder(folder: RunFolder, fresh: bool) -> None:
    """InputError if the folder is a file, or with `fresh` if it has files and is not that of a run."""
    if not folder.path.exists():
        return
    if not folder.path.is_dir():
        raise InputError(f"{folder}: must be the run's folder, but is a file")
    # What `inspect` wrote before the first training may be moved, too.
    has_files = any(not path.name.startswith((".", "inspect.")) for path in folder.path.iterdir())
    if fresh and not folder.is_run and has_files:
        raise InputError(
            f"{folder}: must be a run's folder to be moved aside, but has files and no config.yaml; train "
            "under another name"
        )


def check_writable(folder: Path) -> None:
    """InputError if the folder, or the nearest one above it that exists, takes no file."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise InputError(
            f"{folder}: must be a folder that can be written to, but {nearest} is not ({error.strerror}); ",
            "name another with ", Setting("out"),
        ) from None  # fmt: skip


def check_config(config: Config, before: Config | None, folder: RunFolder, fresh: bool) -> None:
    """InputError if the config does not fit that of the checkpoint, or if there should be a checkpoint."""
    if before is not None:
        report_changes(before, config, folder)
    else:
        for code in config.data.languages_used:
            check_language(code)  # not in the config's types: what was trained with another remains usable
        if not fresh and folder.weights_file.exists():
            raise InputError(
                f"{folder}: must hold the checkpoints of its model to be resumed, but holds none; start ",
                "over with ", Setting("fresh", True), ", which moves it aside, or train under another name",
            )  # fmt: skip
    if config.train.parallel == "fsdp" and config.train.batch_tokens == "auto":
        raise InputError("train.batch_tokens must be a number with train.parallel: fsdp, but is auto")


def refuse_foreign_tokenizer(folder: RunFolder, tokenizer: Tokenizer) -> None:
    """InputError if the new run would overwrite a vocabulary that the user put into its folder."""
    files = [file for file in tokenizer_files(folder.path) if file.exists()]
    if files and not folder.config_file.exists() and files[0].read_bytes() not in tokenizer.models:
        raise InputError(
            f"{files[0]}: a new run's folder must not hold a vocabulary, which it would overwrite; to train "
            "with it, put it elsewhere and name it in `tokenizer.file`"
        )
