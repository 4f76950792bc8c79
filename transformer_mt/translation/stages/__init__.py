"""Stages of a translation: one feature each, such as sentence splitting, capitals, terms and protected text.

In: a line of text, then units to search for. Out: candidates and remarks about them. Begin with `stage.py`;
`call.py` builds the stages of a call in their order.
"""
