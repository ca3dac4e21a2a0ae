"""Each guard catches its leak and accepts clean tests. The leaking tests run in a process of their own."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

HEAD = """
import asyncio, multiprocessing, socket, subprocess, threading, time, warnings
from concurrent.futures import ProcessPoolExecutor

import pytest

KEPT = []


@pytest.fixture
async def ticking():
    task = asyncio.create_task(asyncio.sleep(3600))
    yield
    task.cancel()


@pytest.fixture(scope="module")
def running():
    with subprocess.Popen(["sleep", "60"]) as process:
        yield
        process.kill()
"""

CLEAN = """
def test_sync():
    pass

async def test_asynchronous():
    await asyncio.gather(*(asyncio.sleep(0) for _ in range(3)))
    await asyncio.to_thread(threading.get_ident)
    with socket.socket():
        pass

async def test_task_of_a_fixture(ticking):
    pass

def test_process_of_the_module(running):
    pass

@pytest.mark.timeout(30)
def test_worker_process():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(abs, -1).result() == 1
"""

# each with a line before it on what the report says
LEAKING = """
# asyncio tasks left running: forgotten
async def test_task():
    KEPT.append(asyncio.create_task(asyncio.sleep(3600), name="forgotten"))

# exception lost: Task exception was never retrieved: RuntimeError('not retrieved')
async def test_task_error():
    async def fail():
        raise RuntimeError("not retrieved")
    asyncio.create_task(fail())
    await asyncio.sleep(0)

# was never awaited
async def test_coroutine():
    asyncio.sleep(0)

# exception lost: ResourceWarning
def test_socket_in_a_cycle():
    cycle = [socket.socket()]
    cycle.append(cycle)

# left open:
def test_socket_kept():
    KEPT.append(socket.socket())

# unclosed file
def test_file():
    open(__file__)

# thread left running: stray
def test_thread():
    threading.Thread(target=time.sleep, args=[30], name="stray", daemon=True).start()

# child process left:
def test_child():
    KEPT.append(subprocess.Popen(["sleep", "1"]))

# DeprecationWarning: an old call
def test_warning():
    warnings.warn("an old call", DeprecationWarning)

# Timeout (>1.0s)
@pytest.mark.timeout(1)
def test_time():
    time.sleep(60)

# ~~~ task Task-
@pytest.mark.timeout(1)
async def test_time_of_a_coroutine():
    await asyncio.sleep(60)

# ~~~ task spinning
@pytest.mark.timeout(1)
async def test_time_in_a_background_task():
    # the signal arrives in this task, which keeps the processor; the test itself waits for the task
    async def spin():
        while True:
            time.sleep(0.01)
            await asyncio.sleep(0)
    spinning = asyncio.create_task(spin(), name="spinning")
    await asyncio.Event().wait()
    spinning.cancel()

# ~~~ task spinning
@pytest.mark.timeout(1)
async def test_time_in_a_group_of_tasks(ticking):
    # the group raises the interruption once more when its loop goes on for the teardown
    async def spin():
        while True:
            time.sleep(0.01)
            await asyncio.sleep(0)
    async def watch():
        async with asyncio.TaskGroup() as group:
            group.create_task(spin(), name="spinning")
    watching = asyncio.create_task(watch())
    while not watching.cancelled():
        await asyncio.sleep(0)

# ~~~ task staying
@pytest.mark.timeout(1)
async def test_time_of_a_task_that_ignores_its_end():
    async def stay():
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
    KEPT.append(asyncio.create_task(stay(), name="staying"))
    await asyncio.sleep(60)

# Timeout (>1.0s)
@pytest.mark.timeout(1)
def test_time_of_a_swallowed_interruption():
    try:
        time.sleep(60)
    except BaseException:
        pass
"""

_SAID = re.findall(r"^# (.*)\n(?:@.*\n)?(?:async )?def test_(\w+)", LEAKING, re.MULTILINE)
SAID = {name: said for said, name in _SAID}
PASSING = re.findall(r"^(?:async )?def test_(\w+)", CLEAN, re.MULTILINE)

# source, arguments, what the process prints at its end
ENDING = {
    "swallows every interruption": (
        """
        @pytest.mark.timeout(1)
        async def test_endless():
            with subprocess.Popen(["sleep", "300"]):
                asyncio.current_task().set_name("endless")
                while True:
                    try:
                        await asyncio.sleep(60)
                    except BaseException:
                        pass
        """,
        ["--override-ini=timeout_grace=1"],
        ["the time limit of the test is over", "~~~ thread MainThread", "~~~ task endless"],
    ),
    "keeps the interpreter lock": (
        """
        import ctypes, signal
        @pytest.mark.timeout(1)
        def test_endless():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # which would end the sleep
            ctypes.PyDLL(None).sleep(300)
        """,
        ["--override-ini=timeout_grace=1"],
        ["Timeout (0:00:08)!", "in test_endless"],
    ),
    "takes longer than the whole run may": (
        """
        @pytest.mark.timeout(300)
        async def test_endless():
            asyncio.current_task().set_name("endless")
            await asyncio.sleep(300)
        """,
        ["--override-ini=run_timeout=2"],
        ["the time limit of the run is over", "~~~ task endless"],
    ),
}
ENDING["takes longer than the whole run may, in a worker"] = (
    ENDING["takes longer than the whole run may"][0],
    ["--override-ini=run_timeout=12", "-n1"],
    ["the time limit of the run is over", "~~~ task endless"],
)


def run_inner(
    root: Path, directory: Path, sources: list[str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run tests in a pytest of their own with the project's settings and guards."""
    (directory / "test_inner.py").write_text("\n".join([HEAD, *map(textwrap.dedent, sources)]))
    plugins = ["-p", "tests.support.guards", "-p", "tests.support.timeguard", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-c", str(root / "pyproject.toml"), *plugins, *arguments]
    return subprocess.run(
        [*command, "test_inner.py"],
        cwd=directory,
        env={"PYTHONPATH": str(root), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run all cases in one pytest with the project's settings; return the report of each, "" for a pass."""
    directory = tmp_path_factory.mktemp("inner")
    done = run_inner(request.config.rootpath, directory, [CLEAN, LEAKING], "--junit-xml=report.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, str] = {}
    for case in ET.parse(directory / "report.xml").iter("testcase"):
        text = "\n".join(f"{part.get('message', '')}\n{part.text or ''}" for part in case)
        name = case.attrib["name"].removeprefix("test_")
        found[name] = found.get(name, "") + text
    return found


@pytest.mark.parametrize("name", PASSING)
def test_a_clean_test_passes(reports: dict[str, str], name: str) -> None:
    assert reports[name] == ""


@pytest.mark.parametrize("name", SAID)
def test_a_leaking_test_fails(reports: dict[str, str], name: str) -> None:
    assert SAID[name] in reports[name]


@pytest.mark.parametrize("name", ENDING)
def test_what_cannot_be_interrupted_ends_the_process(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    source, settings, expected = ENDING[name]
    done = run_inner(request.config.rootpath, tmp_path, [source], *settings)
    assert done.returncode == 1, done.stdout + done.stderr
    assert [text for text in expected if text not in done.stderr] == [], done.stderr
    assert " passed" not in done.stdout


def test_every_case_was_run(reports: dict[str, str]) -> None:
    assert sorted(reports) == sorted([*PASSING, *SAID])
