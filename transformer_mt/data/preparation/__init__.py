"""From a config to encoded pairs on disk, once per content of the corpora.

In: a config. Out: `PreparedData`, from the cache where it is there. The first pass finds the drop reason of
each row and learns the vocabulary, the second writes the ids in shards, which several processes may share.
Memory does not grow with the pairs. Begin with `prepare.py`.
"""
