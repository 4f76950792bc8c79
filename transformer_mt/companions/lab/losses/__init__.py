"""Losses from papers, by the names of `train.loss`: each a file of the size of its formula."""
