"""Tests of the core that also use a companion are skipped where it is not installed."""

import pytest

from transformer_mt.companion import companions


def needs(*names: str) -> pytest.MarkDecorator:
    """The mark of a test that uses these companions."""
    lacking = sorted(set(names) - companions().keys())
    return pytest.mark.skipif(bool(lacking), reason=f"needs the companions {', '.join(lacking)}")
