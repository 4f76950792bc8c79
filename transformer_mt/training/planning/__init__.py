"""How long a training takes and how much memory it needs, before it begins.

Begin with `plan.py`, which puts together what the others know: `update_cost.py` an update's arithmetic and
memory, `speed.py` what this machine needs for one, `cluster.py` other machines, `lengths.py` the corpus.
"""
