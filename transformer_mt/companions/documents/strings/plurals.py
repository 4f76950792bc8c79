"""The forms of the plural that a language has, by the names that CLDR gives them."""

from transformer_mt.errors import InputError

NEEDS_BABEL = "this needs babel: pip install 'transformer-mt[documents]'"
FORMS = ("zero", "one", "two", "few", "many", "other")


def forms_of_plural(lang: str) -> list[str]:
    """`one` and `other` for German. InputError without babel."""
    try:
        from babel import Locale, UnknownLocaleError
    except ImportError:
        raise InputError(NEEDS_BABEL) from None
    try:
        tags = Locale.parse(lang.replace("-", "_")).plural_form.tags
    except (UnknownLocaleError, ValueError):
        tags = frozenset({"one"})
    return [form for form in FORMS if form in tags | {"other"}]
