"""Word alignments of the training pairs.

In: encoded pairs, and a file of word alignments or none. Out: for each pair its links (source position,
target position), made by a statistical aligner (extra `alignment`) where there is no file. Begin with
`aligner.py`.
"""
