"""Strings and languages, without corpora or models.

In: lines, sentences, language codes. Out: lines of files by one rule (LF or CRLF), the script and the
language of a text, sentence boundaries, hashes by which equal sentences are found, damage and its repair.
Begin with `lines.py`; each other file holds one property of a text.
"""
