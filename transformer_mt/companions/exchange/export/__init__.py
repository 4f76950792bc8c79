"""Models for other software, each proven by translating with both.

In: a run. Out: a folder or file for CTranslate2, Hugging Face or Argos Translate, whole and proven or not at
all. Begin with `export.py`; each format is a class in a file `to_*.py`.
"""
