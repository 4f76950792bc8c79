"""The languages a user names for a public model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Languages:
    """The languages a user names for a model."""

    source: str | None = None
    target: str | None = None
    is_fallback: bool = False
    """Only for what the model does not say."""


NO_LANGUAGES = Languages()
