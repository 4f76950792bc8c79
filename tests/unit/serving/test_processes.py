"""The processes of a server and its address, before it answers."""

import os
import socket

import pytest

from tests.unit.documents.upper_case import UpperCaseEngine
from transformer_mt.errors import InputError, WorkError
from transformer_mt.serving.http.limits import Limits
from transformer_mt.serving.http.server import Service, serve
from transformer_mt.serving.models import Offer
from transformer_mt.serving.processes import EnginePool


def killed():
    """As by a system that has no memory left."""
    os._exit(9)


def test_a_process_that_ends_while_it_loads_is_a_clear_message():
    with pytest.raises(WorkError, match="ended while it loaded the model; is there memory for 1 of them"):
        EnginePool(killed, UpperCaseEngine(None), 1)


def test_a_port_that_is_taken_is_reported_before_a_model_is_loaded():
    loaded = []
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=str(port)):
            serve(Service([Offer("a", ("en", "de"), lambda: loaded.append(1))], Limits()), "127.0.0.1", port)
    assert loaded == []
