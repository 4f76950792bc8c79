from tests.gpu_rehearsal.process import rehearse


def test_models_are_rehearsed():
    rehearse("models")
