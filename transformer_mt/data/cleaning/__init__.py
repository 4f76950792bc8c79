"""Which pairs of a corpus are not trained on, and why.

In: pairs and the keys of `data.filter`. Out: one drop reason per row, in a file. Begin with `rules.py`, one
class per rule; `drop_reasons.py` names all reasons.
"""
