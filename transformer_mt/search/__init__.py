"""Searches for translations over any model.

In: a function `step(tokens, state) -> (logits, state)` and a start state with `select(rows)`. Out: a list of
hypotheses per sentence. Nothing here knows Transformers. Begin with `beam.py`; `rules.py` holds what forbids
or forces tokens, `sampling.py` the searches by chance.
"""
