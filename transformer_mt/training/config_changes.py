"""What may differ between the configs of one training: before and after it was stopped, and on
its machines.
"""

from pathlib import Path
from typing import Any

from transformer_mt.config import Config
from transformer_mt.errors import InputError
from transformer_mt.training.distributed import Ranks
from transformer_mt.training.metrics_log import say

# A run cannot change these: shapes of the weights, and the position in the data.
_FIXED = (
    "seed",
    "data.source_lang",
    "data.max_length",
    "data.max_length_ratio",
    "data.remove_duplicates",
    "data.target_lang",
    "tokenizer.",
    "model.",
    "train.batch_tokens",
    "train.optimizer",
)
_FREE = ("model.dropout", "model.attention_dropout", "model.ffn_dropout", "tokenizer.bpe_dropout")
# Locations of the data; its content is compared by a fingerprint.
_LOCATIONS = ("data.hub", "data.config", "data.train", "data.valid", "data.test")
# Settings that a validation score depends on.
_AFFECT_SCORES = ("train.monitor", "train.validate_sentences", "evaluate.tokenize", "evaluate.lowercase")


def compare_configs(old: Config, new: Config, folder: Path) -> Config:
    """Report which keys changed since the checkpoint; refuse those that cannot change. Returns the new
    config, with the values found for `auto`.
    """
    if new.train.batch_tokens == "auto":
        found = {"batch_tokens": old.train.batch_tokens}
        new = new.model_copy(update={"train": new.train.model_copy(update=found)})
    if new.decode.split_sentences == "auto":
        kept = {"split_sentences": old.decode.split_sentences}
        new = new.model_copy(update={"decode": new.decode.model_copy(update=kept)})
    before, after = flat(old.model_dump()), flat(new.model_dump())
    changed = [key for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)]
    refused = [key for key in changed if key.startswith(_FIXED) and key not in _FREE]
    if refused:
        lines = [
            f"`{key}` must stay {before.get(key)!r} when a run is resumed, but is {after.get(key)!r}"
            for key in refused
        ]
        raise InputError(
            "\n".join(
                [*lines, f"{folder}: put them back, or start over with --fresh, or train under another name"]
            )
        )
    for key in changed:
        say(f"changed since the last checkpoint: `{key}` from {before.get(key)!r} to {after.get(key)!r}")
    return new


def changed_scores(old: dict[str, Any], new: Config) -> list[str]:
    """The changed keys that make scores incomparable."""
    before, after = flat(old), flat(new.model_dump())
    return [key for key in _AFFECT_SCORES if before.get(key) != after[key]]


def compare_ranks(config: Config, found: dict[str, Any], ranks: Ranks) -> None:
    """Refuse machines that were started differently: each would follow its own config. Where data lies may
    differ.

    `found` holds the command's options, and the values of `auto` on this machine.
    """
    mine = {key: value for key, value in flat(config.model_dump()).items() if not key.startswith(_LOCATIONS)}
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


def compare_updates(batches: int | None, config: Config, ranks: Ranks) -> None:
    """Say when an update is of another number of batches than at the checkpoint, which had `batches` if it is
    known.
    """
    now = ranks.size * config.train.accumulate
    if batches in (None, now):
        return
    keeps, rest = divmod(batches, ranks.size)
    advice = (
        f"train.accumulate={keeps} keeps it"
        if not rest
        else "no train.accumulate keeps it with so many processes"
    )
    say(f"batches in an update: {now} from here on ({ranks.size} x accumulate), {batches} before; {advice}")


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Keys as an override names them."""
    keys: dict[str, Any] = {}
    for key, value in values.items():
        keys |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return keys
