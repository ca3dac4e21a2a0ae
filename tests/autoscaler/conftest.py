"""Fixtures that tests of the loop, and of what an owner stores, share."""

from collections.abc import Iterator

import pytest

from tests.boost.configmaps import Store
from tests.support.controller import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


@pytest.fixture
def store() -> Store:
    return Store()
