"""Helm for the tests of the chart."""

import pytest

from tests.chart import charts


@pytest.fixture(scope="session", autouse=True)
def _helm() -> None:
    charts.start_runtime()
