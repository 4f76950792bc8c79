import pytest

from tests.gpu_rehearsal.process import rehearse


@pytest.mark.long
def test_training_is_rehearsed():
    rehearse("training")
