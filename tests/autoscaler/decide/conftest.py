"""Each test of decisions computes what is kept between decisions: coverage is counted test by test."""

import pytest

from adapter.autoscaler.decide import scheduled


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    scheduled._shown.cache_clear()
