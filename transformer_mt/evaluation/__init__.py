"""Metrics, and the evaluation of models and translations.

In: a model or translations, and test sets. Out: scores with signatures, what was seen in training,
confidence. Begin with `set_evaluation.py`; a metric is a class in `metrics.py`.
"""
