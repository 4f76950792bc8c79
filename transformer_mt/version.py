"""The version of the package."""

__version__ = "1.0.0"

RESULTS = 1
"""Increase this with each change that makes the same model and settings translate differently: translations
and scores that were stored before are then computed again.
"""
