"""Keys that may change when a run is resumed, and keys that must be equal on all ranks."""

from collections.abc import Iterator, Mapping
from typing import Any

from transformer_mt.config import Config, TrainConfig
from transformer_mt.config.build_part import part_files
from transformer_mt.config.error_sentences import flat, marks
from transformer_mt.errors import InputError, Setting
from transformer_mt.files import digest
from transformer_mt.messages import say
from transformer_mt.ranks import Ranks
from transformer_mt.run_folder import RunFolder
from transformer_mt.settings.section import Mark
from transformer_mt.update.build_updater import build_loss


def report_changes(old: Config, new: Config, folder: RunFolder) -> None:
    """Report keys that changed since the checkpoint. InputError if one of them is fixed; a key is fixed
    unless its field is marked as CHANGEABLE or LOCATION.
    """
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
        changed.remove("train.max_updates")  # the checkpoint has the number computed from max_epochs
    for key in changed:
        for inner, old_value, new_value in _differences(key, before.get(key), after.get(key)):
            say(f"changed since the last checkpoint: `{inner}` from {old_value!r} to {new_value!r}")


def part_facts(config: Config) -> dict[str, str]:
    """Digests of the files that parts of a training read."""
    return build_loss(config.train).facts() | {
        key: digest(*files) for key, files in part_files(config).items()
    }


def refuse_other_files(before: Mapping[str, str], now: Mapping[str, str], folder: RunFolder) -> None:
    """InputError if the content of files that parts read has changed since the checkpoint, because the run
    would then end with different weights than without the interruption.
    """
    if changed := [what for what in sorted(before.keys() & now.keys()) if before[what] != now[what]]:
        lines = [f"{what} have changed since this run began" for what in changed]
        raise InputError(
            "\n".join([*lines, f"{folder}: restore them, or start over with "]), Setting("fresh", True)
        )


def _differences(key: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """(key, old value, new value) of each difference. Lists of equal length are compared item by item."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, other) in enumerate(zip(old, new)):
            yield from _differences(f"{key}.{number}", one, other)
    elif isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from _differences(f"{key}.{name}", old.get(name), new.get(name))
    elif old != new:
        yield key, old, new


_WITHOUT_EFFECT = {"name", "train.export", "train.keep_checkpoints", "train.log_every", "train.loggers"}


def changed_keys(old: Config, new: Config) -> list[str]:
    """The keys whose values differ and affect weights or scores."""
    before, after = (flat(config.model_dump(exclude={"parts"})) for config in (old, new))
    every = [*after, *(key for key in before if key not in after)]
    changed = (key for key in every if before.get(key) != after.get(key) and key not in _WITHOUT_EFFECT)
    return [key for key in changed if Mark.LOCATION not in marks(Config, key)]


def refuse_different_ranks(config: Config, saved: dict[str, Any], ranks: Ranks) -> None:
    """InputError if machines were started with different settings, because each would follow its own. Only
    the locations of data may differ.

    `saved` holds the command's options, and the values of `auto` on this machine.
    """
    settings = flat(config.model_dump())
    wanted = {key: value for key, value in settings.items() if Mark.LOCATION not in marks(Config, key)}
    first, *others = ranks.gather(wanted | saved)
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


def has_update_size_changed(batches: int, train: TrainConfig, ranks: Ranks) -> bool:
    """True if the number of batches in an update differs from `batches`, the number at the checkpoint."""
    return not train.update_tokens and batches != ranks.size * train.accumulate


def note_changed_update_size(batches: int, train: TrainConfig, ranks: Ranks) -> None:
    """Say that an update has another number of batches than at the checkpoint, and how to keep it."""
    now = ranks.size * train.accumulate
    keeps, rest = divmod(batches, ranks.size)
    advice = (
        f"train.accumulate={keeps} keeps it"
        if not rest
        else "no train.accumulate keeps it with this number of processes"
    )
    say(f"batches in an update: {now} from here on ({ranks.size} x accumulate), {batches} before; {advice}")
