"""`fastpath ui` as a process: the address that it prints, the page there, and its end."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import ClientSession

from fastpath_sandbox.apiserver.server import Cluster
from tests.support import doctor, tools
from tests.support.answers import answers
from tests.support.verbs import Printed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


class Running(NamedTuple):
    """The verb as a process; `address` is what it prints."""

    process: asyncio.subprocess.Process
    address: str


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[Running]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "adapter", "ui", "--no-browser", *arguments), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        line = (await process.stderr.readline()).decode()
        assert line.startswith("fastpath ui: serves http://127.0.0.1:"), (
            line + (await process.stderr.read()).decode()
        )
        yield Running(process, line.split()[-1])
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def end(verb: Running, http: ClientSession, number: signal.Signals) -> int:
    """End the verb while a browser looks at a page; an open stream does not keep it."""
    root = verb.address.partition("autoscalers/")[0]
    stream = await http.get(f"{root}events?page=")
    await stream.content.readline()
    verb.process.send_signal(number)
    status = await verb.process.wait()
    stream.close()
    return status


async def test_it_serves_the_fleet_until_it_is_ended(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        cluster.create(doctor.hpa("web", doctor.CPU))
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
        async with running(f"--kubeconfig={kubeconfig}") as verb, ClientSession() as http:
            async with http.get(verb.address) as response:
                page = await response.text()
                assert response.status == 200
            assert '<p class="cluster">sandbox</p>' in page
            assert "shop/</span>web</a>" in page
            async with http.get(f"{verb.address}autoscalers/shop/none") as response:
                page = await response.text()
                assert response.status == 404
            assert "<p>There is no HorizontalPodAutoscaler and no FastPathAutoscaler shop/none.</p>" in page
            assert 'autoscalers/shop/web">shop/web</a></li>' in page
            assert await end(verb, http, signal.SIGINT) == 0


async def test_an_autoscaler_that_is_named_is_the_first_page(tmp_path: Path) -> None:
    async with Cluster() as cluster, ClientSession() as http:
        kubeconfig, port = cluster.kubeconfig(tmp_path / "kubeconfig"), tools.free_port()
        async with running("shop/web", f"--kubeconfig={kubeconfig}", f"--port={port}") as verb:
            assert verb.address.startswith(f"http://127.0.0.1:{port}/")
            assert verb.address.endswith("/autoscalers/shop/web")
            assert await end(verb, http, signal.SIGTERM) == 0


@pytest.mark.parametrize(("arguments", "text"), answers("ui/command", "command lines"))
def test_a_wrong_command_line(cli: Callable[..., Printed], arguments: list[str], text: str) -> None:
    printed = cli("ui", "--no-browser", *arguments)
    assert printed.status == 2
    assert text in printed.err
