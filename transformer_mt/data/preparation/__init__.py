"""From a config to encoded pairs on disk, once per content of the corpora.

In: a config. Out: `PreparedData`, from the cache where it is there. Stages over blocks of
text find the drop reason of each row, learn the vocabulary and write the ids. Memory does not grow with the
pairs. Begin with `prepare.py`, then `all_stages.py`.
"""
