"""Checks of corpora before training: possible faults, and the key that acts on each.

In: a config. Out: findings with estimates and examples, as Markdown and HTML. Begin with `inspect.py`;
`checks.py` has one class per finding.
"""
