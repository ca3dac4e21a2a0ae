"""Tests with the mark `thorough` take minutes: they run with `--thorough`, or where their file is named.

A pytest plugin. A folder that is named selects only the other tests, as the whole run does.
"""

import pytest

_CHOSEN = False


def is_chosen() -> bool:
    """Tell whether the run is a thorough one; known before test modules are imported."""
    return _CHOSEN


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="run also the tests that take minutes")


def pytest_configure(config: pytest.Config) -> None:
    """Note the choice for test modules that depend on it."""
    global _CHOSEN  # noqa: PLW0603 - decorators of test modules have no access to the configuration
    _CHOSEN = config.getoption("--thorough")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what is missing from the run."""
    return None if config.getoption("--thorough") else "tests marked thorough run with --thorough only"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the thorough tests out unless they are asked for."""
    if config.getoption("--thorough"):
        return
    named = {
        (config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args
    }
    dropped = [item for item in items if item.get_closest_marker("thorough") and item.path not in named]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        left_out = set(dropped)
        items[:] = [item for item in items if item not in left_out]
