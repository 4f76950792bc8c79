"""From a config to a trained model in a run's folder.

`loop.py` is the training: begin there. `setup.py` opens a run, `update` computes one update, `parallel`
lets several processes make it together, `state` is what a checkpoint saves and restores, `reporting` writes
logs and the report, `planning` estimates a training before it begins.
"""
