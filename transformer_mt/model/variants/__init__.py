"""Parts of a model that the literature exchanges: scores, positions inside attention, recurrence.

Each is a class with the interface of the plain part. Begin with `attention_scores.py`.
"""
