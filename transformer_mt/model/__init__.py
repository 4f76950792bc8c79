"""The networks. All but `build_model.py`, which makes one from a config, need torch alone.

In: token ids. Out: logits, or memory and decoder states for a search. Read `attention.py`, `masks.py` and
`positions.py`, then `transformer.py`, which follows the paper. `variants` holds what the literature
exchanges, `kernels` what is computed faster.
"""
