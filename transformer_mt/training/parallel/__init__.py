"""Several processes that train one model. One process alone runs the same code.

Begin with `distributed.py`.
"""
