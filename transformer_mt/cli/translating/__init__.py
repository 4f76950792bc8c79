"""The request of `translate`, its checks, and `--resume`."""
