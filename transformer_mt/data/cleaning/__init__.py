"""Cleaning rules: which pairs of a corpus are dropped, and why.

In: pairs and the keys of `data.filter`. Out: one drop reason per row. All is in `cleaning_rules.py`.
"""
