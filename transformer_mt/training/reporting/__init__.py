"""The reports of a training: metrics.jsonl, the progress bar, report.md, loggers.

Begin with `metrics_log.py`. `diagnosis.py` says what the curves show.
"""
