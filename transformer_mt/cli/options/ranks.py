"""Commands that translate in several processes, which torchrun starts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from transformer_mt.errors import InputError

if TYPE_CHECKING:
    from transformer_mt.ranks import Ranks
    from transformer_mt.translation.translator import Translator


def has_ranks() -> bool:
    """True if torchrun started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", 1)) > 1


def join_ranks(translator: "Translator") -> "Ranks":
    """The processes that translate together. InputError for an engine that uses all cores by itself."""
    from transformer_mt.ranks import LONG_TIMEOUT, Ranks
    from transformer_mt.translation.engines.torch_engine import TorchEngine

    if not isinstance(translator.engine, TorchEngine):
        raise InputError(
            "torchrun must have a run's folder and --engine torch; CTranslate2 uses all cores by itself"
        )
    return Ranks.join(translator.engine.device, LONG_TIMEOUT)  # the input may be a person


@contextmanager
def translating_together(translator: "Translator") -> Iterator["Translator | None"]:
    """Give rank 0, which runs the command, a translator that searches with all ranks. On the others the value
    is None, and comes when rank 0 is done.
    """
    if not has_ranks():
        yield translator
        return
    from transformer_mt.ranks import refuse_lost_rank
    from transformer_mt.translation.engines.divided_engine import DividedEngine

    ranks = join_ranks(translator)
    engine = DividedEngine(translator.engine, ranks)
    try:
        if ranks.is_rank_zero:
            yield translator.with_engine(engine)
            engine.let_go()
        else:
            engine.follow()
            yield None
    except RuntimeError as error:
        refuse_lost_rank(error)
        raise
    ranks.leave()
