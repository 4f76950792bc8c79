"""Texts of interfaces: catalogues of translators and of programs."""
