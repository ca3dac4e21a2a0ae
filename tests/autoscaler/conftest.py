"""Fixtures that several tests of the loop share."""

from collections.abc import Iterator

import pytest

from tests.support.controller import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.controller.close()
