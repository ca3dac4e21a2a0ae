"""Guards around every test: what a test started, it must have ended.

A pytest plugin. After a passed test and its fixtures are gone there is no asyncio task, thread, child process
or open file that was not there before; no exception was lost in a task or a destructor. Warnings (settings of
pytest) and the time limit (pytest-timeout) are guarded elsewhere. What a fixture of a wider scope started is
not the test's: the state is noted after such fixtures and before the test's own. A failed test has said
enough: it was torn from its work.
"""

import asyncio
import contextlib
import gc
import multiprocessing
import sys
import threading
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from pathlib import Path

import pytest
import pytest_asyncio

GRACE = 0.5
"""Seconds that something already told to end may take to do so."""


@dataclass(slots=True)
class _Noted:
    threads: frozenset[threading.Thread]
    children: frozenset[int]
    files: frozenset[str]
    lost: list[str] = field(default_factory=list)
    failed: bool = False


_FILES = Path("/proc/self/fd")
_NOTED = pytest.StashKey[_Noted]()


def pytest_configure() -> None:
    """Have no event loop outside of tests: asyncio would make one on request, and no code would close it."""
    asyncio.set_event_loop(None)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Set modules and collected tests aside, so that the collections below look only at what tests made."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _note_state(request: pytest.FixtureRequest) -> None:
    item = request.node
    item.stash[_NOTED] = _Noted(frozenset(threading.enumerate()), _children(), _open_files())


@pytest.fixture(autouse=True)
def _guard_tasks(request: pytest.FixtureRequest, _note_state: None) -> None:
    if pytest_asyncio.is_async_test(request.node):
        request.getfixturevalue("_no_task_left")


@pytest.fixture
async def _no_task_left(request: pytest.FixtureRequest, _note_state: None) -> AsyncIterator[None]:
    """Fail when tasks are left in the test's loop; set up before other loop fixtures, so torn down last."""
    noted = request.node.stash[_NOTED]

    def note(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        noted.lost.append(f"{context.get('message')}: {context.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(note)
    yield
    if noted.failed:
        return
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=GRACE)
    if left:
        names = ", ".join(sorted(f"{task.get_name()} ({task.get_coro()})" for task in left))
        pytest.fail(f"asyncio tasks left running: {names}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note that the test failed."""
    report = yield
    if report.failed and _NOTED in item.stash:
        item.stash[_NOTED].failed = True
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """After the teardown of all fixtures, compare with the state noted before the test.

    After the last test of a module everything is collected, and what is left is set aside for good: a
    collection that looks at all that earlier modules have imported or kept, or that looks at everything again
    because one of them called `gc.unfreeze`, takes up to half a second, after each test with a loop.
    """
    yield
    is_last = nextitem is None or nextitem.path != item.path
    try:
        noted = item.stash.get(_NOTED, None)
        if noted is None:  # its set-up did not get that far
            return
        del item.stash[_NOTED]
        if noted.failed:
            sys.last_traceback = sys.last_value = (
                None  # it holds what the test left; later tests shall not meet it
            )
            _collect([])
            return
        lost = noted.lost
        if is_last or pytest_asyncio.is_async_test(item) or _open_files() - noted.files:
            _collect(lost)
        faults = [f"exception lost: {text}" for text in lost]
        faults += [f"thread left running: {name}" for name in _threads_left(noted.threads)]
        faults += [f"child process left: {_command(child)}" for child in sorted(_children() - noted.children)]
        faults += [f"left open: {file}" for file in sorted(_open_files() - noted.files)]
        if faults:
            pytest.fail("\n".join(faults), pytrace=False)
    finally:
        if is_last:
            gc.freeze()


def _collect(lost: list[str]) -> None:
    """Destroy what is unreachable; an exception in a destructor (ResourceWarning among them) joins `lost`."""

    def note(unraisable: "sys.UnraisableHookArgs") -> None:
        lost.append(f"{unraisable.exc_value!r} in {unraisable.object!r}")

    before = sys.unraisablehook
    sys.unraisablehook = note
    try:
        gc.collect()
    finally:
        sys.unraisablehook = before


def _threads_left(before: frozenset[threading.Thread]) -> list[str]:
    new = [thread for thread in threading.enumerate() if thread not in before]
    for thread in new:
        thread.join(GRACE)
    return [thread.name for thread in new if thread.is_alive()]


def _children() -> frozenset[int]:
    """Return the ids of this process's children, zombies among them.

    Outside of Linux only multiprocessing's own are known. Its resource tracker serves the whole session.
    """
    found = {child.pid for child in multiprocessing.active_children() if child.pid is not None}
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            found |= {int(number) for number in path.read_text().split()}
        except FileNotFoundError:  # the thread has ended
            continue
    return frozenset(found - {getattr(resource_tracker._resource_tracker, "_pid", None)})


def _command(child: int) -> str:
    try:
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
    except OSError:
        words = []
    return f"{child} {b' '.join(words).decode(errors='replace')}".strip() or str(child)


def _open_files() -> frozenset[str]:
    """Return number and target of each open file and socket of this process; nothing elsewhere than on Linux.

    The standard three are pytest's to replace; the resource tracker's pipe is the session's.
    """
    kept = {"0", "1", "2", str(getattr(resource_tracker._resource_tracker, "_fd", None))}
    found = set()
    for path in _FILES.iterdir() if _FILES.exists() else ():
        if path.name not in kept:
            with contextlib.suppress(FileNotFoundError):  # the listing's own
                found.add(f"{path.name} {path.readlink()}")
    return frozenset(file for file in found if "/libffi.so" not in file)  # libffi opens itself, once
