from tests.gpu_rehearsal.process import rehearse


def test_training_is_rehearsed():
    rehearse("training")
