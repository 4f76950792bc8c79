import pytest

from tests.gpu_rehearsal.process import rehearse


@pytest.mark.long
def test_models_are_rehearsed():
    rehearse("models")
