"""Models of a server that are in memory already."""

from functools import partial

from transformer_mt.companions.serving.models import Directions, Model


def directions_of(batchers):
    """A server's models by their directions."""
    return Directions({pair: Model(partial(dict.get, batchers, pair)) for pair in batchers})
