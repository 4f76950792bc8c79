"""Names and order of the parts of a Transformer in other software.

Shared by importing and export: one module for each layout, in both directions.
"""
