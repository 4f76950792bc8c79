"""Variants of one config against each other."""
