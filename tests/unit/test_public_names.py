"""The names that a Python program finds in `transformer_mt`."""

import transformer_mt
from transformer_mt.companion import public_names
from transformer_mt.config import load_config


def test_dir_shows_the_public_names_alone():
    assert sorted(transformer_mt.__all__) == ["Translator", "__version__", "load_config", "register", "train"]
    assert dir(transformer_mt) == sorted([*transformer_mt.__all__, *public_names()])
    assert transformer_mt.load_config is load_config and callable(transformer_mt.train)
