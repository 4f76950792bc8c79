"""The languages a user names for a public model."""

from dataclasses import dataclass

from transformer_mt.errors import InputError


class UnknownLanguageError(InputError):
    """Neither the model nor the user says its languages."""


@dataclass(frozen=True)
class Languages:
    """The languages a user names for a model."""

    source: str | None = None
    target: str | None = None
    is_fallback: bool = False
    """Only for what the model does not say."""


NO_LANGUAGES = Languages()
