"""The names that other software has for the parts of a Transformer, and in which order it has them.

Shared by importing and export: one module for each layout, in both directions.
"""
