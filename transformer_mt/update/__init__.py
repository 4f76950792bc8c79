"""One update: loss, gradients, optimizer, learning rate.

In: batches and a learning rate. Out: changed weights and the loss. Begin with `step.py`.
"""
