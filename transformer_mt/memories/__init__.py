"""Translation memories: the same text gets the translation that it had before.

In: pairs of a file and a text. Out: the translation of the same text, apart from spaces. Begin with
`translation_memory.py`.
"""
