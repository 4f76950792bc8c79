"""What may differ between the configs of one training: before and after it was stopped, and on
its machines.
"""

from pathlib import Path
from typing import Any

from transformer_mt.config import Config
from transformer_mt.config.keys import flat, marks
from transformer_mt.config.section import Mark
from transformer_mt.errors import InputError, Setting
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.metrics_log import say_on_rank_zero


def resumed_config(old: Config, new: Config, folder: Path) -> Config:
    """The new config, with the values that were found for `auto`. Keys that changed since the checkpoint are
    reported; InputError for those that are fixed, as a key is unless its field is marked.
    """
    if new.train.batch_tokens == "auto":
        found = {"batch_tokens": old.train.batch_tokens}
        new = new.model_copy(update={"train": new.train.model_copy(update=found)})
    if new.decode.split_sentences == "auto":
        kept = {"split_sentences": old.decode.split_sentences}
        new = new.model_copy(update={"decode": new.decode.model_copy(update=kept)})
    if new.init_from and new.data.language_pieces == "auto":
        pieces = {"language_pieces": old.data.language_pieces}
        new = new.model_copy(update={"data": new.data.model_copy(update=pieces)})
    before, after = flat(old.model_dump()), flat(new.model_dump())
    changed = [key for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)]
    refused = [key for key in changed if not marks(Config, key) & {Mark.CHANGEABLE, Mark.LOCATION}]
    if refused:
        lines = [
            f"`{key}` must stay {before.get(key)!r} when a run is resumed, but is {after.get(key)!r}"
            for key in refused
        ]
        raise InputError(
            "\n".join([*lines, f"{folder}: put them back, or start over with "]),
            Setting("fresh", True),
            ", or train under another name",
        )
    if new.train.max_epochs and new.train.max_updates > old.train.max_updates:
        changed.remove("train.max_updates")  # the checkpoint has the updates of its epochs instead
    for key in changed:
        say_on_rank_zero(
            f"changed since the last checkpoint: `{key}` from {before.get(key)!r} to {after.get(key)!r}"
        )
    return new


def changed_scores(old: dict[str, Any], new: Config) -> list[str]:
    """The changed keys that make scores incomparable."""
    before, after = flat(old), flat(new.model_dump())
    changed = [key for key in after if before.get(key) != after[key]]
    return [key for key in changed if Mark.AFFECTS_SCORES in marks(Config, key)]


def refuse_different_ranks(config: Config, found: dict[str, Any], ranks: Ranks) -> None:
    """Refuse machines that were started differently: each would follow its own config. Where data lies may
    differ.

    `found` holds the command's options, and the values of `auto` on this machine.
    """
    settings = flat(config.model_dump())
    mine = {key: value for key, value in settings.items() if Mark.LOCATION not in marks(Config, key)}
    first, *others = ranks.gather(mine | found)
    for rank, other in enumerate(others, start=1):
        if differs := [
            key for key in sorted(first.keys() | other.keys()) if first.get(key) != other.get(key)
        ]:
            lines = [
                f"`{key}` is {first.get(key)!r} on rank 0 and {other.get(key)!r} on rank {rank}"
                for key in differs
            ]
            raise InputError(
                "\n".join(
                    [
                        *lines,
                        "every machine must have the same config; start all with the same file and key=value",
                    ]
                )
            )


def note_other_update_size(batches: int | None, config: Config, ranks: Ranks) -> None:
    """Say when an update is of another number of batches than at the checkpoint, which had `batches` if it is
    known.
    """
    now = ranks.size * config.train.accumulate
    if config.train.update_tokens or batches in (None, now):
        return
    keeps, rest = divmod(batches, ranks.size)
    advice = (
        f"train.accumulate={keeps} keeps it"
        if not rest
        else "no train.accumulate keeps it with so many processes"
    )
    say_on_rank_zero(
        f"batches in an update: {now} from here on ({ranks.size} x accumulate), {batches} before; {advice}"
    )
