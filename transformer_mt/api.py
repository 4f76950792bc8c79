"""The function `train` for Python programs."""

from pathlib import Path

from transformer_mt.config import Config
from transformer_mt.config.custom_score import MakeScore, using_score
from transformer_mt.training import loop


def train(
    config: Config,
    out: str | Path | None = None,
    fresh: bool = False,
    attention_score: MakeScore | None = None,
) -> Path:
    """Train `config` in its folder, resuming from its newest checkpoint if there is one. Returns the folder.
    `attention_score(heads, width)` makes those of `model.attention.score: custom`.

    Raises InputError before any work, WorkError when the work fails, Interrupted after a signal. With several
    ranks, a process must end after InputError or WorkError: its state differs from its peers'.
    """
    with using_score(attention_score):
        return loop.train(config, out, fresh)
