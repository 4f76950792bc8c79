"""The texts of `fill`, `complete` and `classify`."""

import sys
from argparse import Namespace

import pytest

from transformer_mt.companions.language_models.commands import texts_of
from transformer_mt.errors import InputError


def test_bytes_that_are_not_utf_8_are_read_as_unknown_characters():
    """A Latin-1 é, as the shell gives it."""
    assert list(texts_of(Namespace(texts=["caf\udce9", "café"]))) == ["caf\ufffd", "café"]


def test_a_closed_standard_input_is_told(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input is closed; give TEXT"):
        texts_of(Namespace(texts=[]))
