"""Searches for translations of token ids: torch here, others by companions.

In: ids of sources and the keys of `decode`. Out: hypotheses, log-probabilities of given translations,
attention weights. Begin with `engine.py`, the interface and the choice of an engine.
"""
