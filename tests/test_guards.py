"""Each guard catches what it is for and lets clean tests be. The leaking tests run in a process of their own."""

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
                raise RuntimeError("nobody looked")
            asyncio.create_task(fail())
            await asyncio.sleep(0)
        """,
        "exception lost: Task exception was never retrieved: RuntimeError('nobody looked')",
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
        def test_time():
            time.sleep(60)
        """,
        "Timeout (>2.0s)",
    ),
    "time_of_a_coroutine": (
        """
        async def test_time_of_a_coroutine():
            await asyncio.sleep(60)
        """,
        "Timeout (>2.0s)",
    ),
}


@pytest.fixture(scope="module")
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run all cases in one pytest with the project's settings; what was reported of each, "" when it passed."""
    directory = tmp_path_factory.mktemp("inner")
    sources = [*CLEAN.values(), *(source for source, _ in LEAKING.values())]
    (directory / "test_inner.py").write_text(HEAD + "".join(map(textwrap.dedent, sources)))
    root: Path = request.config.rootpath
    settings = ["-c", str(root / "pyproject.toml"), "-p", "tests.support.guards", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *settings, "--junit-xml=report.xml", "test_inner.py"]
    done = subprocess.run(
        command, cwd=directory, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False
    )
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


def test_every_case_was_run(reports: dict[str, str]) -> None:
    assert reports.keys() == CLEAN.keys() | LEAKING.keys()
