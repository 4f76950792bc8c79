"""`python -m transformer_mt` is `transformer-mt`."""

from transformer_mt.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
