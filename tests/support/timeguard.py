"""The time limit of each test and of the whole run, which no task can swallow.

pytest-timeout reads the limits (`timeout` in pyproject.toml, the mark `timeout`, PYTEST_TIMEOUT) and raises a
plain failure from its signal handler. In an asyncio test that failure lands in whatever task happens to run.
A background task then ends with it, and the test goes on to wait for that task. This plugin replaces the
signal handler:

1. At the limit it raises a KeyboardInterrupt. Event loops pass that exception on from any task and callback,
   so the loop itself stops, and the test fails with the stacks of all its tasks. The signal repeats until the
   teardown has ended too.
2. When even that does not end the test, a thread of the run prints the stacks of all threads and tasks and
   ends the process. It also bounds the run as a whole.
3. Should native code hold the interpreter lock, so that neither of the two can run, `faulthandler` ends the
   process from a C thread.

The limit of a test is a `processor.Limit`: it follows the processor time that the test can get.
"""

import asyncio
import contextlib
import faulthandler
import gc
import io
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from _pytest.outcomes import (
    Failed,  # the class of `pytest.fail.Exception`, which has no name for type checkers
)

from tests.support.processor import MOST, Limit

REPEAT_SECONDS = 5.0
"""Between two interruptions of a test that is over its limit."""

GRACE_SECONDS = 60.0
"""How long past its limit a test may take to fail and to be torn down, before the process ends."""

RUN_SECONDS = 75 * 60.0
"""Limit of the whole run. It is below the 90 minutes after which CI ends a job without a word."""


class OutOfTime(Failed, KeyboardInterrupt):
    """The test that runs is over its limit.

    As a KeyboardInterrupt it passes through event loops, TaskGroups and `except Exception`. As a failure it
    does not keep pytest from the teardown of further fixtures.
    """


class Watchdog(threading.Thread):
    """Ends the process, with every stack, when the run or an uninterruptible test is over its limit."""

    def __init__(self, run_ends: float, stderr: int) -> None:
        super().__init__(name="time limit of the run", daemon=True)
        self._stderr = stderr
        self._run_ends = run_ends
        self._limit: Limit | None = None
        self._grace = 0.0
        self._test = ""
        self._changed = threading.Condition()
        self._stopped = False

    def begin(self, test: str, limit: Limit, grace: float) -> None:
        """Bound a test: by how many seconds after its limit it has to end."""
        with self._changed:
            self._test, self._limit, self._grace = test, limit, grace
            self._changed.notify()

    def end(self) -> None:
        """Note that the test has ended."""
        with self._changed:
            self._test, self._limit = "", None

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self.join()

    def run(self) -> None:
        """Wait for one of the limits."""
        with self._changed:
            while not self._stopped:
                of_run = self._run_ends - _now()
                of_test = float("inf") if self._limit is None else self._limit.left() + self._grace
                if min(of_run, of_test) <= 0:
                    self._end_process("test" if of_test <= of_run else "run")
                self._changed.wait(min(of_run, of_test))

    def _end_process(self, limit: str) -> None:
        text = f"\n{self._test or 'between tests'}: the time limit of the {limit} is over; the process ends\n"
        with contextlib.suppress(OSError):  # a closed pipe must not keep the process alive
            os.write(self._stderr, (text + format_threads() + format_tasks()).encode(errors="replace"))
        _kill_children()
        os._exit(1)


_WATCHDOG = pytest.StashKey[Watchdog]()
_RUN_ENDS = pytest.StashKey[float]()
_STDERR = pytest.StashKey[int]()
_IN_PHASE = pytest.StashKey[bool]()
"""Whether set-up, call or teardown of the test runs: outside of them an interruption would end the whole run.
"""
_STACKS = pytest.StashKey[str]()
"""What was running when the limit was over, until a failure says it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings."""
    parser.addini("run_timeout", "seconds that the whole run may take", default=str(RUN_SECONDS))
    parser.addini(
        "timeout_grace", "seconds past its limit that a test may take to end", default=str(GRACE_SECONDS)
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start the watchdog before any test notes which threads there are."""
    stderr = os.dup(2)  # output is not captured now
    config.stash[_STDERR] = stderr
    ends = getattr(config, "workerinput", {}).get("run_ends", _now() + float(config.getini("run_timeout")))
    config.stash[_RUN_ENDS] = ends
    config.stash[_WATCHDOG] = Watchdog(ends, stderr)
    config.stash[_WATCHDOG].start()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Have a worker of pytest-xdist end before the run does.

    Only a worker knows the stacks of its test and the programs that the test has started. All processes have
    the same monotonic clock.
    """
    early = min(10.0, float(node.config.getini("run_timeout")) / 4)
    node.workerinput["run_ends"] = node.config.stash[_RUN_ENDS] - early


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the watchdog."""
    config.stash[_WATCHDOG].stop()
    os.close(config.stash[_STDERR])


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> bool:
    """Arm all three limits for a test, in place of pytest-timeout's own timer."""
    seconds = float(settings.timeout)  # type: ignore[attr-defined]  # a tuple of pytest-timeout's that has no public name
    grace = float(item.config.getini("timeout_grace"))
    limit = Limit(seconds)

    def interrupt(_: int, frame: FrameType | None) -> None:
        left = limit.left()
        if left > 0:
            signal.setitimer(signal.ITIMER_REAL, left, REPEAT_SECONDS)
        elif item.stash.get(_IN_PHASE, False):
            stacks = "".join(traceback.format_stack(frame)) + format_tasks()
            item.stash.setdefault(_STACKS, f"Timeout (>{seconds}s)\n{stacks}")
            raise OutOfTime

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, REPEAT_SECONDS)
    item.config.stash[_WATCHDOG].begin(item.nodeid, limit, grace)
    faulthandler.dump_traceback_later(MOST * seconds + 2 * grace, exit=True, file=item.config.stash[_STDERR])
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool:
    """Disarm them where a debugger is about to open.

    pytest-timeout asks for this after a failure, too. The teardown of a failed test needs its limits most.
    """
    if item.config.getoption("usepdb"):
        _disarm(item)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Disarm them after the teardown."""
    try:
        return (yield)
    finally:
        _disarm(item)


def _disarm(item: pytest.Item) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    item.config.stash[_WATCHDOG].end()
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Turn the interruption into a failure of the fixture."""
    with _failing(item):
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Turn the interruption into a failure of the test."""
    with _failing(item):
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Turn the interruption into a failure of the fixture."""
    with _failing(item):
        yield


@contextlib.contextmanager
def _failing(item: pytest.Item) -> Iterator[None]:
    """Fail the phase that was interrupted, also where the test has swallowed the interruption."""
    item.stash[_IN_PHASE] = True
    try:
        with contextlib.suppress(OutOfTime):
            yield
    finally:
        item.stash[_IN_PHASE] = False
    stacks = item.stash.get(_STACKS, "")
    if stacks:
        del item.stash[_STACKS]
        pytest.fail(stacks, pytrace=False)


def format_threads() -> str:
    """Return the stack of each thread but this one."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    text = io.StringIO()
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            text.write(f"\n~~~ thread {names.get(ident, ident)}\n")
            traceback.print_stack(frame, file=text)
    return text.getvalue()


def format_tasks() -> str:
    """Return the stack of each task of each event loop that is open."""
    text = io.StringIO()
    for loop in [each for each in gc.get_objects() if issubclass(type(each), asyncio.AbstractEventLoop)]:
        if loop.is_closed():
            continue
        for task in sorted(asyncio.all_tasks(loop), key=asyncio.Task.get_name):
            text.write(f"\n~~~ task {task.get_name()}\n")
            task.print_stack(file=text)
    return text.getvalue()


def _kill_children() -> None:
    """End the programs that tests have started: without this process nothing would."""
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)


def _now() -> float:
    return time.monotonic()  # noqa: TID251 - real time is what is bounded
