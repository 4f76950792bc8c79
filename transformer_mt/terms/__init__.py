"""Glossaries: words with required translations.

In: a file of terms and a text. Out: the terms in the text, and whether a translation has them. Words are
compared by their stems, so that "houses" is a "house". Begin with `glossary.py`.
"""
