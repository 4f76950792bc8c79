"""The version of the package."""

__version__ = "1.0.0"

RESULTS = 1
"""Raised by each change after which the same model and settings translate otherwise: translations and scores
that were kept before are then made again.
"""
