"""The processes of a server and its address, before it answers."""

import os
import socket
import time
from functools import partial

import pytest

from tests.helpers.upper_case import UpperCaseEngine, upper_case_translator
from transformer_mt.companions.serving.http.limits import Limits
from transformer_mt.companions.serving.http.server import Service, serve
from transformer_mt.companions.serving.models import Offer
from transformer_mt.companions.serving.segment_queue import EnginePool
from transformer_mt.errors import InputError, WorkError


def killed_first(folder):
    """The first process that comes here dies, the others load a model."""
    try:
        (folder / "first").touch(exist_ok=False)
    except FileExistsError:
        return upper_case_translator()
    time.sleep(1.0)  # the others wait for it by now
    os._exit(9)


@pytest.mark.parametrize("count", [1, 2])
def test_a_process_that_ends_while_it_loads_is_a_clear_message(tmp_path, count):
    told = f"ended while loading the model; is there memory for {count} of them"
    with pytest.raises(WorkError, match=told):
        EnginePool(partial(killed_first, tmp_path), UpperCaseEngine(None), count)


class Noting:
    """Loads a translator, and notes how many have done so when a call is answered."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self):
        time.sleep(0.5 * len(list(self.folder.iterdir())))
        (self.folder / str(os.getpid())).touch()
        return upper_case_translator()


def test_every_process_has_loaded_the_model_before_the_first_call(tmp_path):
    """One that loads later would load what the files are then."""
    pool = EnginePool(Noting(tmp_path), UpperCaseEngine(None), 2)
    assert len(list(tmp_path.iterdir())) == 2 and pool.memory() > 0
    pool.close()


def test_a_port_that_is_taken_is_reported_before_a_model_is_loaded():
    loaded = []
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=str(port)):
            serve(Service([Offer("a", ("en", "de"), lambda: loaded.append(1))], Limits()), "127.0.0.1", port)
    assert loaded == []
