"""The parts that sections of the YAML are made of: their base class, language codes, cleaning rules.

The kinds of corpora use them, too, and stand between them and the sections. Begin with `section.py`.
"""
