"""The function `train` for Python programs."""

from pathlib import Path

from transformer_mt.config import Config
from transformer_mt.config.custom_parts import MakeScore, using
from transformer_mt.evaluation.metric import Metric
from transformer_mt.training import loop
from transformer_mt.training.update.loss_kinds import Loss


def train(
    config: Config,
    out: str | Path | None = None,
    fresh: bool = False,
    attention_score: MakeScore | None = None,
    loss: type[Loss] | None = None,
    monitor: Metric | None = None,
) -> Path:
    """Train `config` in its folder, resuming from its newest checkpoint if there is one. Returns the folder.
    `attention_score(heads, width)` makes those of `model.attention.score: custom`; `loss` is the class of
    `train.loss: custom`, `monitor` the metric of `train.monitor: external` (the higher the better); they set
    these keys.

    Raises InputError before any work, WorkError when the work fails, Interrupted after a signal. With several
    ranks, a process must end after InputError or WorkError: its state differs from its peers'.
    """
    given = {"loss": "custom" if loss else None, "monitor": "external" if monitor else None}
    if keys := {key: value for key, value in given.items() if value}:
        config = config.model_copy(update={"train": config.train.model_copy(update=keys)})
    with using(attention_score, loss, monitor):
        return loop.train(config, out, fresh)
