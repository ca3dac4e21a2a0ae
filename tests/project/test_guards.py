"""Each guard catches its leak and accepts clean tests. The leaking tests run in a process of their own."""

import os
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

CLEAN = {
    "sync": """
        def test_sync():
            pass
        """,
    "asynchronous": """
        async def test_asynchronous():
            await asyncio.gather(*(asyncio.sleep(0) for _ in range(3)))
            await asyncio.to_thread(threading.get_ident)
            with socket.socket():
                pass
        """,
    "task_of_a_fixture": """
        async def test_task_of_a_fixture(ticking):
            pass
        """,
    "process_of_the_module": """
        def test_process_of_the_module(running):
            pass
        """,
    "worker_process": """
        @pytest.mark.timeout(30)
        def test_worker_process():
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                assert pool.submit(abs, -1).result() == 1
        """,
}

# source and what the report says
LEAKING = {
    "task": (
        """
        async def test_task():
            KEPT.append(asyncio.create_task(asyncio.sleep(3600), name="forgotten"))
        """,
        "asyncio tasks left running: forgotten",
    ),
    "task_error": (
        """
        async def test_task_error():
            async def fail():
                raise RuntimeError("not retrieved")
            asyncio.create_task(fail())
            await asyncio.sleep(0)
        """,
        "exception lost: Task exception was never retrieved: RuntimeError('not retrieved')",
    ),
    "coroutine": (
        """
        async def test_coroutine():
            asyncio.sleep(0)
        """,
        "was never awaited",
    ),
    "socket_in_a_cycle": (
        """
        def test_socket_in_a_cycle():
            cycle = [socket.socket()]
            cycle.append(cycle)
        """,
        "exception lost: ResourceWarning",
    ),
    "socket_kept": (
        """
        def test_socket_kept():
            KEPT.append(socket.socket())
        """,
        "left open: ",
    ),
    "file": (
        """
        def test_file():
            open(__file__)
        """,
        "unclosed file",
    ),
    "thread": (
        """
        def test_thread():
            threading.Thread(target=time.sleep, args=[30], name="stray", daemon=True).start()
        """,
        "thread left running: stray",
    ),
    "child": (
        """
        def test_child():
            KEPT.append(subprocess.Popen(["sleep", "1"]))
        """,
        "child process left: ",
    ),
    "warning": (
        """
        def test_warning():
            warnings.warn("an old call", DeprecationWarning)
        """,
        "DeprecationWarning: an old call",
    ),
    "time": (
        """
        @pytest.mark.timeout(1)
        def test_time():
            time.sleep(60)
        """,
        "Timeout (>1.0s)",
    ),
    "time_of_a_coroutine": (
        """
        @pytest.mark.timeout(1)
        async def test_time_of_a_coroutine():
            await asyncio.sleep(60)
        """,
        "~~~ task Task-",
    ),
    "time_in_a_background_task": (
        """
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
        """,
        "~~~ task spinning",
    ),
    "time_in_a_group_of_tasks": (
        """
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
        """,
        "~~~ task spinning",
    ),
    "time_of_a_task_that_ignores_its_end": (
        """
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
        """,
        "~~~ task staying",
    ),
    "time_of_a_swallowed_interruption": (
        """
        @pytest.mark.timeout(1)
        def test_time_of_a_swallowed_interruption():
            try:
                time.sleep(60)
            except BaseException:
                pass
        """,
        "Timeout (>1.0s)",
    ),
}

# source, settings, what the process prints at its end
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
        ["timeout_grace=1"],
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
        ["timeout_grace=1"],
        ["Timeout (0:00:08)!", "in test_endless"],
    ),
    "takes longer than the whole run may": (
        """
        @pytest.mark.timeout(300)
        async def test_endless():
            asyncio.current_task().set_name("endless")
            await asyncio.sleep(300)
        """,
        ["run_timeout=2"],
        ["the time limit of the run is over", "~~~ task endless"],
    ),
}


def run_inner(
    root: Path, directory: Path, sources: list[str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run tests in a pytest of their own with the project's settings and guards."""
    (directory / "test_inner.py").write_text(HEAD + "".join(map(textwrap.dedent, sources)))
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
    sources = [*CLEAN.values(), *(source for source, _ in LEAKING.values())]
    done = run_inner(request.config.rootpath, directory, sources, "--junit-xml=report.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, str] = {}
    for case in ET.parse(directory / "report.xml").iter("testcase"):
        text = "\n".join(f"{part.get('message', '')}\n{part.text or ''}" for part in case)
        name = case.attrib["name"].removeprefix("test_")
        found[name] = found.get(name, "") + text
    return found


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_test_passes(reports: dict[str, str], name: str) -> None:
    assert reports[name] == ""


@pytest.mark.parametrize("name", LEAKING)
def test_a_leaking_test_fails(reports: dict[str, str], name: str) -> None:
    assert LEAKING[name][1] in reports[name]


@pytest.mark.parametrize("name", ENDING)
def test_what_cannot_be_interrupted_ends_the_process(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    source, settings, expected = ENDING[name]
    done = run_inner(
        request.config.rootpath, tmp_path, [source], *(f"--override-ini={each}" for each in settings)
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert [text for text in expected if text not in done.stderr] == [], done.stderr
    assert " passed" not in done.stdout


def test_the_limit_of_the_run_holds_in_a_worker(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    source, _, expected = ENDING["takes longer than the whole run may"]
    done = run_inner(request.config.rootpath, tmp_path, [source], "--override-ini=run_timeout=12", "-n1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert [text for text in expected if text not in done.stderr] == [], done.stderr
    assert " passed" not in done.stdout


def test_every_case_was_run(reports: dict[str, str]) -> None:
    assert reports.keys() == CLEAN.keys() | LEAKING.keys()
