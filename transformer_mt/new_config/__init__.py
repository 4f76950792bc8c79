"""`transformer-mt new`: a config for a user's files.

In: files and two languages. Out: YAML with a comment on each choice. Begin with `write.py`.
"""
