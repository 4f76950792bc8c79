"""A look at corpora before training: what may be wrong, and which key acts on it."""
