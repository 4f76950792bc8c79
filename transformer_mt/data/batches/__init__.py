"""From encoded pairs to the batches of each update.

In: `PreparedData`. Out: batches of similar length. Their order and every random change of a pair are
functions of (seed, epoch, row), so that a resumed training sees what an uninterrupted one would.
Begin with `batching.py`.
"""
