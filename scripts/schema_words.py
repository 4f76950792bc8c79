"""Each attribute and element whose value is a free text by the schemas of Office Open XML (XSD) and of
OpenDocument (Relax NG), with its class: translated, counted as a kind, or not shown.

    python scripts/schema_words.py FOLDER_OF_SCHEMAS [--names]

Free are strings without a pattern, a length or a list of values. The rest of the law is in
`companions/documents/office/package.py`.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from lxml import etree

from transformer_mt.companions.documents.office.package import class_of
from transformer_mt.messages import table

_XS, _RNG = "{http://www.w3.org/2001/XMLSchema}", "{http://relaxng.org/ns/structure/1.0}"
_RESTRICTIONS = ("enumeration", "pattern", "length")
_TRANSLATED = {
    "<t>", "<oddHeader>", "<oddFooter>", "<evenHeader>", "<evenFooter>", "<firstHeader>", "<firstFooter>",
    "tblCaption@val", "tblDescription@val", "cNvPr@descr", "cNvPr@title", "docPr@descr", "docPr@title",
    "<svg:title>", "<svg:desc>", "<table:title>", "<table:desc>",
    "<presentation:footer-decl>", "<presentation:header-decl>", "<presentation:date-time-decl>",
}  # fmt: skip
_WITHIN = {
    "<v>": "texts that formulas make", "<formula1>": "choices of drop-down lists",
    "numFmt@formatCode": "texts of number formats", "<instrText>": "entries of indexes",
}  # fmt: skip
"""Counted by their content."""

Name = tuple[str, str | None]
"""An element or a type, and its attribute; None for its own text."""


def of_xsd(trees: list[etree._Element]) -> Iterator[Name]:
    """The names in the schemas of Office Open XML: a type is called by the element that has it."""
    simple = {node.get("name"): node for tree in trees for node in tree.iter(f"{_XS}simpleType")}

    def is_free(kind: str | None) -> bool:
        name = (kind or "").split(":")[-1]
        while (node := simple.get(name)) is not None:
            restriction = node.find(f"{_XS}restriction")
            if restriction is None or any(restriction.findall(f"{_XS}{what}") for what in _RESTRICTIONS):
                return False
            name = restriction.get("base", "").split(":")[-1]
        return name in ("string", "normalizedString", "token")

    elements = defaultdict(set)
    for tree in trees:
        for node in tree.iter(f"{_XS}element"):
            elements[node.get("type", "").split(":")[-1]].add(node.get("name") or node.get("ref"))
            if node.get("name") and is_free(node.get("type")):
                yield node.get("name"), None
    for tree in trees:
        for kind in tree.iter(f"{_XS}complexType", f"{_XS}attributeGroup"):
            names = elements.get(kind.get("name"), {kind.get("name") or "?"})
            for attribute in kind.iter(f"{_XS}attribute"):
                if attribute.get("name") and is_free(attribute.get("type")):
                    yield from ((name, attribute.get("name")) for name in names)
            extension = kind.find(f"{_XS}simpleContent/{_XS}extension")
            if extension is not None and is_free(extension.get("base")):
                yield from ((name, None) for name in names)


def of_rng(tree: etree._Element) -> Iterator[Name]:
    """The names in the schema of OpenDocument."""
    free = {"string"}

    def is_free(node: etree._Element) -> bool:
        refs = [ref.get("name") for ref in node.iter(f"{_RNG}ref")]
        data = [one for one in node.iter(f"{_RNG}data") if one.get("type") == "string" and not len(one)]
        return bool(free & set(refs) or data or node.find(f"{_RNG}text") is not None)

    for node in tree.iter(f"{_RNG}attribute", f"{_RNG}element"):
        name = node.get("name")
        if name is None:
            continue
        if node.tag == f"{_RNG}attribute":
            if is_free(node):
                owner = next(node.iterancestors(f"{_RNG}element", f"{_RNG}define"))
                yield owner.get("name").removesuffix("-attlist"), name
        elif node.find(f"{_RNG}text") is not None or any(
            ref.get("name") in ("string", "paragraph-content") for ref in node.findall(f".//{_RNG}ref")
        ):
            yield name, None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER_OF_SCHEMAS")
    parser.add_argument("--names", action="store_true", help="with all names of each class")
    arguments = parser.parse_args()
    trees = [etree.parse(file).getroot() for file in sorted(arguments.folder.glob("*.xsd"))]
    formats = {"Office Open XML": set(of_xsd(trees))}
    for file in arguments.folder.glob("*.rng"):
        formats["OpenDocument"] = set(of_rng(etree.parse(file).getroot()))
    rows, named = [], []
    for format, names in formats.items():
        classes = defaultdict(list)
        for element, attribute in sorted(names, key=str):
            name = f"<{element}>" if attribute is None else f"{element}@{attribute}"
            counted = _WITHIN.get(name) or class_of(element, attribute)
            what = "translated" if name in _TRANSLATED else counted or "not shown"
            classes[what].append(name)
        order = sorted(classes, key=lambda what: (what != "translated", what == "not shown", what))
        rows += [[format, what, len(classes[what]), ", ".join(classes[what][:4])] for what in order]
        named += [f"{format}, {what}: {', '.join(classes[what])}" for what in order]
    print(table(rows, ["format", "class", "names", "such as"]))
    if arguments.names:
        print("\n\n".join(named))


if __name__ == "__main__":
    main()
