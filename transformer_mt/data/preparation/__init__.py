"""The stages of a preparation, and the data they leave.

In: corpora. Out: `PreparedData`. Stages over blocks of text find the drop reason of each row (`clean.py`),
learn the vocabulary and write the ids (`encode_blocks.py`). Memory does not grow with the pairs.
"""
