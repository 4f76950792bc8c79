"""Cleaning rules: which pairs of a corpus are dropped, and why.

In: pairs and the keys of `data.filter`. Out: one drop reason per row, in a file. Begin with `rules.py`, one
class per rule; `drop_reasons.py` names all reasons.
"""
