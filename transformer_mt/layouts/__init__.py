"""What other software calls the parts of a Transformer, and in which order it has them.

Shared by importing and export: one module for each layout, in both directions.
"""
