import numpy as np

from transformer_mt.data.cleaning.model_score import pair_scores


def test_a_pair_is_bad_if_it_is_improbable_or_the_models_disagree():
    """Junczys-Dowmunt 2018: -(|a - b| + (a + b) / 2) of the two cross-entropies."""
    forward, backward = np.array([-1.0, -1.0, -3.0, -1.0]), np.array([-1.0, -3.0, -3.0, -np.inf])
    assert pair_scores(forward, backward).tolist() == [-1.0, -4.0, -3.0, -np.inf]
