"""The networks. Imports torch only.

In: token ids. Out: logits, or memory and decoder states for a search. Read `attention.py`, `masks.py` and
`positions.py`, then `transformer.py`, which follows the paper; `build_model.py` makes a model from a config.
`variants` holds what the literature exchanges, `kernels` the fast forms of the same values.
"""
