"""The parts of `translate`: its checks, documents, and `--resume`."""
