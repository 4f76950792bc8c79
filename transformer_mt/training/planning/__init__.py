"""How long a training takes and how much memory it needs, before it begins.

Begin with `plan.py`.
"""
