"""Markup in documents: tokens, and texts with marks."""
