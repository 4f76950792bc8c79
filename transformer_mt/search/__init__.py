"""Searches for translations: beam, sampling and minimum-Bayes-risk, over any step function."""
