"""Glossaries, whose terms translations must have, and translation memories, which are reused.

In: lines, and a glossary or a memory. Out: translations that follow it. Begin with `glossary.py`;
`required_terms.py` is the stage that makes translations have the terms, `constrained.py` is its search, and
`annotation.py` writes terms into training sources.
"""

from transformer_mt.companion import Companion

_HERE = "transformer_mt.companions.terms"
companion = Companion(
    kinds={
        "change": {"terms": f"{_HERE}.annotation:TermAnnotation"},
        "resource": {
            "glossary": f"{_HERE}.glossary_resource:GlossaryResource",
            "memory": f"{_HERE}.memory:TranslationMemory",
        },
        "selection": {"phrases": f"{_HERE}.constrained:select_phrases"},
    },
    options={"translate": f"{_HERE}.memory:add_memory_out"},
    hooks={"translation_sink": f"{_HERE}.memory:memory_out"},
)
