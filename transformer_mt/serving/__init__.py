"""Models whose batches hold lines of many requests, loaded while they are used.

In: lines, texts, documents and files. Out: their translations. `http` serves them.
Begin with `model.py` and `batcher.py`.
"""
