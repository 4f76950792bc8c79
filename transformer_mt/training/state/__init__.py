"""Everything that changes during a training, saved and restored as one.

Begin with `run.py`. `config_changes.py` says which keys may change between two parts of a training,
`averaging.py` keeps the weights that are averaged at its end.
"""
