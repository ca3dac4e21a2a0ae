"""The decision code is covered by tests to the last branch; a run that leaves any of it out fails.

Tracing makes a test up to three times as slow, and most tests spend their time in other code. So only the
tests of the decision code (`TRACED`) are traced, and the collection of all tests, as that is when most
modules are imported. With pytest-xdist each worker sends what it has measured when it ends, and the
controller adds it up.

A pytest plugin and not a step after the tests, so that the run's last line is pytest's own summary. It is
loaded with `-p`, because modules imported before it are not measured.
"""

import io
from collections.abc import Generator

import coverage
import pytest

GATED = (
    "adapter/model",
    "adapter/bounds",
    "adapter/rules",
    "adapter/config",
    "adapter/autoscaler/decide",
    "adapter/autoscaler/usage",
)
"""The decision code."""

TRACED = (
    "tests/model",
    "tests/bounds",
    "tests/rules",
    "tests/config",
    "tests/autoscaler/decide",
    "tests/autoscaler/metrics/test_polling.py",
    "tests/autoscaler/metrics/test_readings.py",
    "tests/autoscaler/test_boost_adversity.py",
    "tests/autoscaler/test_clock_doubt.py",
    "tests/autoscaler/test_loop.py",
    "tests/autoscaler/test_schedule_book.py",
    "tests/autoscaler/test_schedule_status.py",
    "tests/autoscaler/usage/test_calibration.py",
    "tests/autoscaler/usage/test_history.py",
    "tests/autoscaler/usage/test_learned.py",
    "tests/autoscaler/usage/test_noise.py",
    "tests/autoscaler/usage/test_source.py",
    "tests/golden",
    "tests/tools/check",
    "tests/tools/convert/test_left_out.py",
    "tests/tools/test_evaluate.py",
    "tests/tools/test_explain.py",
    "tests/tools/test_yaml_documents.py",
    "tests/provider/test_metrics.py",
    "tests/provider/test_resource.py",
    "tests/provider/test_scaler_provider.py",
    "tests/provider/test_scraped_parity.py",
)
"""The folders and modules of its tests."""

_HEADING = "decision code that no test reaches"


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Begin to measure: the first of a plugin's hooks, before any conftest.py is imported."""
    pluginmanager.register(Gate(), "coverage gate of this process")


class Gate:
    """What one process, be it a worker, the controller or the only one, has measured."""

    def __init__(self) -> None:
        self._measured = coverage.Coverage(data_file=None, branch=True, source=GATED, messages=False)
        self._tracing = False
        self._report = ""
        self._trace(wanted=True)

    def _trace(self, *, wanted: bool) -> None:
        if wanted != self._tracing:
            (self._measured.start if wanted else self._measured.stop)()
            self._tracing = wanted

    def pytest_configure(self, config: pytest.Config) -> None:
        """Trace no further in a controller, which runs no tests."""
        if config.getoption("dist", "no") != "no":
            self._trace(wanted=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Trace from before the first fixture of a test until after its last."""
        self._trace(wanted=_is_traced(item))
        return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Add what a worker has measured; one that crashed sends nothing, and has failed the run."""
        measured = getattr(node, "workeroutput", {}).get("coverage")
        if measured is not None:
            data = coverage.CoverageData(no_disk=True)
            data.loads(measured)
            self._measured.get_data().update(data)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a passed run when something is not covered; a worker sends its measurements."""
        self._trace(wanted=False)
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["coverage"] = self._measured.get_data().dumps()
            return
        report = io.StringIO()
        covered = self._measured.report(file=report, skip_covered=True, show_missing=True, precision=2)
        if covered < 100:
            self._report = report.getvalue()
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what is missing."""
        if self._report:
            terminalreporter.section(_HEADING, sep="=", red=True)
            terminalreporter.write(self._report)


def _is_traced(item: pytest.Item) -> bool:
    path = item.path.relative_to(item.config.rootpath)
    return any(path.is_relative_to(each) for each in TRACED)
