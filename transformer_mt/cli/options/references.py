"""The references that translators bring: terms and memories."""

import argparse

Direction = tuple[str, str]
FileOf = tuple[Direction | None, str]
"""A file, and the direction that it is for; None where there is only one."""

_GLOSSARY = "terms and their required translations (.tsv, .csv, .tbx)"
_MEMORY = "earlier translations (.tmx, .tsv, ...): the same text gets the same translation again"


def add_references(parser: argparse.ArgumentParser) -> None:
    """A file of each."""
    parser.add_argument("--glossary", metavar="FILE", help=_GLOSSARY)
    parser.add_argument("--memory", metavar="FILE", help=_MEMORY)


def add_references_by_direction(parser: argparse.ArgumentParser) -> None:
    """A file of each for each direction."""
    for flag, meaning in (("--glossary", _GLOSSARY), ("--memory", _MEMORY)):
        parser.add_argument(
            flag, metavar="[FROM:TO=]FILE", action="append", default=[], type=_file_of,
            help=f"{meaning}; repeatable",
        )  # fmt: skip


def direction_of(text: str) -> Direction:
    """The languages of `en:de`."""
    source, colon, target = text.partition(":")
    if not (source and colon and target):
        raise argparse.ArgumentTypeError(f"must be two languages such as en:de, but is {text}")
    return source, target


def _file_of(text: str) -> FileOf:
    direction, is_given, file = text.partition("=")
    return (direction_of(direction), file) if is_given and ":" in direction else (None, text)
