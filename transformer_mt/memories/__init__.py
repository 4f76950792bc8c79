"""Translation memories: what was translated before, and what of it is like a text.

In: pairs of a file and a text. Out: the translation of the same text, or of the most similar one. Begin with
`memory.py`.
"""
