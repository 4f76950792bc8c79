"""From encoded pairs to the batches of each update.

In: `Rows`, changed or not. Out: batches of similar length. Their order and every random change of a pair are
functions of (seed, epoch, row), so that a resumed training sees what an uninterrupted one would.
Begin with `batching.py`.
"""
