""""""

import pytest

from tests.gpu_rehearsal.process import rehearse


@pytest.mark.long
def test_decoding_is_rehearsed():
    rehearse("decoding")


#


@pytest.mark.long
def test_models_are_rehearsed():
    rehearse("models")


#


@pytest.mark.long
def test_training_is_rehearsed():
    rehearse("training")
