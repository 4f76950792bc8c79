"""Documents: their text is translated, everything else stays.

In: a document as text. Out: the same document with translated texts; markup within a sentence is placed by
alignment. Begin with `translate.py`.
"""
