"""The parts of a translation; translator.py, at the top of the package, shows how they work together.

In: lines and `Options`. Out: `Translation`s with scores, flags and alignments. `planner.py` divides a line
into segments that fit the model; `result.py` defines the options and the fields of a translation.
"""
