"""Metrics, significance and comparison of translations.

In: a model or translations, and test sets. Out: scores with signatures, significance of differences, tables
and a page of comparisons. Begin with `evaluate.py`; a metric is a class in `sacrebleu_metrics.py` or
`error_rates.py`. `comparison.py` sets systems side by side, `breakdown.py` says where they differ.
"""
