import pytest

from tests.gpu_rehearsal.process import rehearse


@pytest.mark.long
def test_decoding_is_rehearsed():
    rehearse("decoding")
