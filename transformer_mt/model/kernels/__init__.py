"""Faster forms of plain parts, with the same values; tests compare each with the plain one.

Begin with `fast_attention.py`.
"""
