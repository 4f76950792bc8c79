"""The networks. They need only torch, except `build_model.py`, which makes a network from a config.

In: token ids. Out: logits, or memory and decoder states for a search. Read `attention.py`, `masks.py` and
`positions.py`, then `transformer.py`, which follows the paper. `variants` holds alternative parts from the
literature, `kernels` faster implementations.
"""
