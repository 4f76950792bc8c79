"""Exports models for other software, and proves each by comparing its translations with the run's.

In: a run. Out: a complete and proven folder or file for CTranslate2, Hugging Face or Argos Translate; nothing
if the proof fails. Begin with `export.py`; each format is a class in a file `to_*.py`.
"""
