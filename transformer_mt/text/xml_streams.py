"""What all readers of XML streams do: large files are read in bounded memory, and entities are refused."""

from typing import Any

from transformer_mt.errors import InputError


def refuse_entities(tree: Any, path: str) -> None:
    """InputError for a document that defines entities: they would be left out of its text, or expand without
    end.
    """
    dtd = tree.docinfo.internalDTD
    if dtd is not None and any(True for _ in dtd.iterentities()):
        raise InputError(f"{path}: must not define XML entities, but does; write the characters themselves")


def forget(unit: Any) -> None:
    """Free the unit and those before it: the tree would grow with the file."""
    unit.clear(keep_tail=False)
    while unit.getprevious() is not None:
        del unit.getparent()[0]
