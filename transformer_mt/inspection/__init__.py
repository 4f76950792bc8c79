"""A look at corpora before training: what may be wrong, and which key acts on it.

In: a config. Out: findings with estimates and examples, as Markdown and HTML. Begin with `inspect.py`;
`checks.py` has one class per finding.
"""
