"""How long a training will take on this machine, and in how much memory (`train --plan`, `new`).

Begin with `plan.py`, which puts together what the others know: `update_memory.py` an update's memory,
`lengths.py` the corpus's lengths, `speed.py` this machine's speed.
"""
