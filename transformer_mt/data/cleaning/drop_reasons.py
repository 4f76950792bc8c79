"""The names of the reasons to drop a training pair, and the one that needs no rule: its lengths."""

from collections import Counter

READ = "read"
EMPTY = "empty side"
DUPLICATE = "duplicate"
LEAKED = "in validation or test"
HELD_OUT = "held out"
COPY = "copy"
SCRIPT = "script"
LANGUAGE = "language"
NUMBERS = "numbers"
MARKUP = "markup"
ENCODING = "encoding"
LONG = "over-long"
RATIO = "length ratio"
KEPT = "kept"
ALWAYS = (EMPTY, DUPLICATE, LEAKED, LONG, RATIO, KEPT)
"""Reasons that tables show even where no pair has them."""
REASONS = (
    EMPTY, LEAKED, HELD_OUT, COPY, MARKUP, ENCODING, NUMBERS, SCRIPT, LANGUAGE, DUPLICATE, LONG,
    RATIO, KEPT,
)  # fmt: skip
"""In the order in which they are found."""


def length_reason(src_length: int, tgt_length: int, max_length: int, max_ratio: float) -> str | None:
    """Why a pair of these lengths (pieces, without end-of-sentence) is dropped, or None."""
    shorter, longer = sorted((src_length, tgt_length))
    if shorter == 0:  # nothing was left after normalisation
        return EMPTY
    if longer + 1 > max_length:
        return LONG
    # Adding 10 keeps short pairs such as "Yes." and "Yes, that is right."
    if longer > max_ratio * shorter + 10:
        return RATIO
    return None


def reason_table(counts: Counter[str]) -> str:
    """The counts as a table, one reason a line."""
    total = max(1, counts[READ])
    rows = [(name, counts[name]) for name in (READ, *REASONS) if name in (READ, *ALWAYS) or counts[name]]
    return "\n".join(f"  {name:<24}{count:>12,}  {count / total:7.2%}" for name, count in rows)
