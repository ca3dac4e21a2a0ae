import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import uvloop

from adapter.cli import main, serve
from adapter.compose import app
from adapter.config.options import Options
from fastpath_sandbox.apiserver.server import Cluster
from tests.support.answers import answers
from tests.support.processor import limited

RULES = "rules: [{seriesQuery: load, resources: {template: <<.Resource>>}, metricsQuery: load}]"


@pytest.fixture(scope="module", autouse=True)
def _signals_of_libuv() -> None:
    """Have libuv make the pipe for signals that it keeps until the process ends, outside any test that looks
    for what stays open.
    """

    async def handle() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: None)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(handle())


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """Return the options that `serve` hands to the adapter, which then ends at once."""
    seen: list[Options] = []

    async def run(options: Options, version: str, stop: asyncio.Event) -> None:
        seen.append(options)

    monkeypatch.setattr(app, "run", run)
    return seen


@pytest.fixture(autouse=True)
def _quiet_again() -> object:
    """Take away the log handler that `serve` puts in place."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    own = logging.getLogger("adapter").level
    yield None
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("adapter").setLevel(own)


def test_a_command_line_becomes_options(rules: Path, served: list[Options]) -> None:
    arguments = [
        "/adapter",
        "serve-is-not-read-here",
        f"--config={rules}",
        "--prometheus-url=http://prometheus:9090",
        "--metrics-relist-interval=1m",
        "--secure-port=6443",
        "--v=6",
    ]
    assert serve.main(arguments) == 0
    assert served == [
        Options(
            config=(str(rules),),
            prometheus_url="http://prometheus:9090",
            metrics_relist_interval=60.0,
            secure_port=6443,
            verbosity=6,
        )
    ]
    assert logging.getLogger("adapter").level == logging.DEBUG


def test_notices_are_logged_once(
    rules: Path, served: list[Options], capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve.main([f"--config={rules}", "--client-qps=5", "--client-burst=9", "--logtostderr=true"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("notice=")[2] for line in lines] == [
        '"flags without effect here: --client-qps, --client-burst"',
        '"flags that prometheus-adapter removed in v0.11, without effect here: --logtostderr"',
    ]


def test_faults_of_the_command_line_are_all_printed(
    served: list[Options], capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main.main(["serve", "--metrics-relist-intervall=1m", "--secure-port=x", "--bind-address=0.0.0"]) == 2
    )
    assert capsys.readouterr().err.splitlines() == [
        "fastpath serve: --metrics-relist-intervall: unknown flag, did you mean --metrics-relist-interval?",
        'fastpath serve: --secure-port: "x": expected a port from 0 to 65535',
        'fastpath serve: --bind-address: "0.0.0": expected an IP address such as 127.0.0.1',
        "fastpath serve: --config: expected the path of a rules file, or of a folder of them",
    ]
    assert served == []


def test_a_file_that_cannot_be_used_is_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("Rules: []")
    assert main.main(["serve", f"--config={path}"]) == 2
    assert main.main(["serve", f"--config={tmp_path / 'none.yaml'}"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        (
            f"fastpath serve: {path}:1: Rules: an empty list: unknown key, did you mean rules? Keys are "
            f"case-sensitive"
        ),
        (
            f"fastpath serve: --config: {tmp_path / 'none.yaml'}: expected a readable file: No such file or "
            "directory"
        ),
    ]


@pytest.mark.parametrize(("address", "flag"), answers("cli/serve", "addresses"))
def test_an_address_is_known_by_its_flag(address: str, flag: str) -> None:
    options = Options(secure_port=6443, health_probe_bind_address=":8081", metrics_bind_address="[::]:8443")
    text = f"error while attempting to bind on address {address}: address already in use"
    assert serve._flag_of_address(options, text) == flag


# -- a real process


class ServeProcess:
    """A running `fastpath serve`."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.url = f"https://127.0.0.1:{port}"

    async def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal; return status and standard error."""
        self.process.send_signal(number)
        _, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()


@asynccontextmanager
async def start(directory: Path, rules: Path, cluster: Cluster, port: int) -> AsyncIterator[ServeProcess]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "adapter", "serve", f"--config={rules}", f"--secure-port={port}"),
        f"--lister-kubeconfig={cluster.kubeconfig(directory / 'kubeconfig')}",
        f"--cert-dir={directory / 'certificates'}",
        *("--bind-address=127.0.0.1", "--authentication-skip-lookup"),
        "--prometheus-url=http://127.0.0.1:1",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield ServeProcess(process, port)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def _ready(served: ServeProcess) -> None:
    """Wait until the adapter says that it is ready."""
    async with aiohttp.ClientSession() as session, limited(30):
        while served.process.returncode is None:
            try:
                async with session.get(f"{served.url}/readyz", ssl=False) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.02)
    pytest.fail("it ended before it was ready")


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_a_taken_port_is_one_clear_line_and_signals_end_it_in_order(
    tmp_path: Path, rules: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    port, other = unused_tcp_port_factory(), unused_tcp_port_factory()
    async with Cluster() as cluster, start(tmp_path, rules, cluster, port) as first:
        await _ready(first)
        async with start(tmp_path, rules, cluster, port) as second:
            _, err = await second.process.communicate()
            assert second.process.returncode == 1
            assert err.decode().splitlines() == [
                (
                    "fastpath serve: --secure-port: error while attempting to bind on address "
                    f"('127.0.0.1', {port}): address already in use"
                )
            ]
        async with start(tmp_path, rules, cluster, other) as third:
            await _ready(third)
            ends = [await first.end(signal.SIGTERM), await third.end(signal.SIGINT)]
    assert [status for status, _ in ends] == [0, 0]
    assert not [err for _, err in ends if "Traceback" in err]
