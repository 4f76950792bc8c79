"""A run while it is trained: what is checked before, its state, what it says and logs, what it publishes.

Begin with `run.py`, the objects of a run; the story of a training stands in `training.py`.
"""
