"""A sentence pair."""

Pair = tuple[str, str]
"""A source and its translation."""
