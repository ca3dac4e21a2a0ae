"""Fixtures and guards of all tests. What they are made of lives in tests/support."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from tests.support.scripts import Recorded

pytest_plugins = [
    "tests.support.guards",
    "tests.support.timeguard",
    "tests.support.thorough",
    "tests.support.prometheus",
    "tests.support.kubectl",
    "tests.support.tls",
    "tests.support.serving",
    "tests.prometheus.scripted",
]

hypothesis.settings.register_profile("quick", deadline=None, max_examples=50)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True, database=None)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "quick")
)

# No test trusts an authority of the machine, and reading the hundred that it has takes each client 30 ms.
os.environ.setdefault("SSL_CERT_FILE", os.devnull)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the files of recorded outputs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give a property, which is a hundred tests in one, the time of several; a limit of its own wins."""
    for item in items:
        function = getattr(item, "function", None)
        if hypothesis.is_hypothesis_test(function) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(30))
        if item.get_closest_marker("looptime") is not None:
            # When no callback is ready, nothing within the loop can happen before its next timer. looptime's
            # 42 idle turns before it moves the time take nine tenths of a long simulation.
            item.add_marker(pytest.mark.looptime(noop_cycles=0))


def pytest_collection_finish() -> None:
    """Have hypothesis build its table of characters now: on a fresh machine that alone takes longer than a
    test may.
    """
    settings = hypothesis.settings(database=None)
    hypothesis.find(strategies.text(), lambda _text: True, settings=settings)


@pytest.fixture(scope="session")
def recorded(pytestconfig: pytest.Config) -> Recorded:
    """Return what compares a text with that of a file, and writes the file with `--update`."""

    def compare(path: Path, text: str) -> None:
        assert text.strip(), f"{path} records nothing: it has no line that asks for an output"
        if pytestconfig.getoption("update"):
            path.write_text(text)
        assert text == path.read_text()

    return compare


@pytest.fixture(autouse=True)
def _log_levels() -> Iterator[None]:
    """Put back the levels and handlers of the process' log, which a command under test sets."""
    loggers = [logging.getLogger(), logging.getLogger("adapter")]
    before = [(logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers
