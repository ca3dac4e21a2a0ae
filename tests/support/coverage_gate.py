"""The decision code is covered by tests to the last branch; a run that leaves any of it out fails.

SlipCover adds probes to the code when a module is imported, and removes each probe once it is hit, so that
tests run at their usual speed, and all of them count. With pytest-xdist each worker sends what it has
measured when it ends, and the controller adds it up.

A pytest plugin and not a step after the tests, so that the run's last line is pytest's own summary. It is
loaded with `-p`, because modules imported before it are not measured. `FASTPATH_COVERED` names other folders:
then what is missing is printed, and nothing fails.
"""

import json
import os

import pytest
from slipcover import Slipcover, merge_coverage
from slipcover.importer import FileMatcher, ImportManager

GATED = (
    "adapter/model",
    "adapter/bounds",
    "adapter/rules",
    "adapter/config",
    "adapter/autoscaler/decide",
    "adapter/autoscaler/usage",
)
"""The decision code."""

_EXCLUDED = ["if TYPE_CHECKING:", r"\.\.\.$", "@overload"]


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Begin to measure: the first of a plugin's hooks, before any conftest.py is imported."""
    pluginmanager.register(CoverageGate(), "coverage gate of this process")


class CoverageGate:
    """What one process, be it a worker, the controller or the only one, has measured."""

    def __init__(self) -> None:
        self._shown = os.environ.get("FASTPATH_COVERED", "").split()
        folders = self._shown or list(GATED)
        self._probes = Slipcover(branch=True, source=folders, exclude_also=_EXCLUDED)
        ImportManager(self._probes, FileMatcher(sources=folders)).__enter__()
        self._of_workers: list[dict[str, object]] = []
        self._missing: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Add what a worker has measured; one that crashed sends nothing, and has failed the run."""
        measured = getattr(node, "workeroutput", {}).get("coverage")
        if measured is not None:
            self._of_workers.append(json.loads(measured))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a passed run when something is not covered; a worker sends its measurements."""
        measured = self._probes.get_coverage()
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["coverage"] = json.dumps(measured)
            return
        for other in self._of_workers:
            merge_coverage(measured, other)
        if session.exitstatus != pytest.ExitCode.OK and not self._shown:
            return  # what failed, or did not run, covers nothing
        for path, found in sorted(measured["files"].items()):
            lines, branches = found["missing_lines"], found["missing_branches"]
            gaps = [*map(str, lines), *(f"{before}->{after or 'exit'}" for before, after in branches)]
            if gaps:
                self._missing.append(f"{path}: {', '.join(gaps)}")
        if self._missing and not self._shown:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what is missing."""
        if self._missing:
            code = "code" if self._shown else "decision code"
            terminalreporter.section(f"{code} that no test reaches", sep="=", red=True)
            terminalreporter.write("\n".join([*self._missing, ""]))
