"""The decision code is covered by tests to the last branch; a run under coverage that leaves any of it out fails.

A pytest plugin and not a step after the tests, so that the run's last line is pytest's own summary.
"""

import io

import coverage
import pytest

GATED = ["adapter/model/*", "adapter/rules/*", "adapter/autoscaler/decide/*", "adapter/config/*"]

_REPORT = pytest.StashKey[str]()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn a passed run into a failed one when something is not covered."""
    measured = coverage.Coverage.current()
    assert measured is not None, "this plugin belongs into `coverage run -m pytest`"
    report = io.StringIO()
    covered = measured.report(file=report, include=GATED, skip_covered=True, show_missing=True, precision=2)
    if covered < 100:
        session.config.stash[_REPORT] = report.getvalue()
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what is missing."""
    report = config.stash.get(_REPORT, "")
    if report:
        terminalreporter.section("decision code that no test reaches", sep="=", red=True)
        terminalreporter.write(report)
