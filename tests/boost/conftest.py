"""Fixtures that several tests of floors share."""

import pytest

from tests.boost.configmaps import Store
from tests.boost.floorterms import FloorProcess


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def process(store: Store) -> FloorProcess:
    return FloorProcess(store)
