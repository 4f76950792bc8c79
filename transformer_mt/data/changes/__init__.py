"""Changes of training rows from epoch to epoch, one file each: augmentation, terms, BPE-dropout, objectives.

In: encoded pairs. Out: the pairs of an epoch, a function of the seed, the epoch and the row alone. Begin with
`change.py`; `training_rows.py` has the changes in their order.
"""
