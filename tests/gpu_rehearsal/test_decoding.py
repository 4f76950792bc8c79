from tests.gpu_rehearsal.process import rehearse


def test_decoding_is_rehearsed():
    rehearse("decoding")
