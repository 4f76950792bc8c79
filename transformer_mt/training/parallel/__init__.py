"""Several processes that train one model. One process alone runs the same code.

Begin with `distributed.py`: the ranks, and what they say to each other. `sharding.py` gathers tensors that
are divided among them.
"""
