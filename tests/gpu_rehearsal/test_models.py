from tests.gpu_rehearsal.process import rehearse


def test_models_is_rehearsed():
    rehearse("models")
