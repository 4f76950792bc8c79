"""Searches for translations of token ids: torch for runs, CTranslate2 for exports.

In: ids of sources and the keys of `decode`. Out: hypotheses, log-probabilities of given translations,
attention weights. Begin with `engine.py`, the interface.
"""
