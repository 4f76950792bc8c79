"""The parts of a translation, whose story stands at the top of the package, in translator.

In: lines and `Options`. Out: `Translation`s with scores, flags and alignments. A line is split into segments
that a model translates in one token (`planner.py`); `result.py` says what a translation tells.
"""
