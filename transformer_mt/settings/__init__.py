"""What sections of the YAML are made of: their base class, names of parts, keys that corpora share.

The kinds of corpora use them, too, and stand between them and the sections. Begin with `section.py`.
"""
