"""From lines of text to translations, one per line, in order.

In: lines and `Options`. Out: `Translation`s with scores, flags and alignments. A line is split into segments
that a model translates in one piece, searched by an engine, and joined again. Begin with `translator.py`;
`result.py` says what comes out, `engines` are torch and CTranslate2.
"""
