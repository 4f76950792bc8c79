"""A way to open a model."""

from pathlib import Path

from transformer_mt.run_folder import RunFolder


def open_link(model, languages, config):
    """The run whose path stands in a file NAME.link; None for other models."""
    if str(model).endswith(".link"):
        return RunFolder(Path(model).read_text(encoding="utf-8").strip())
    return None
