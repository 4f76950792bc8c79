"""Translation memories: earlier translations, and which of them resemble a text.

In: pairs of a file and a text. Out: the translation of the same text, or of the most similar one. Begin with
`memory.py`.
"""
