import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from adapter.errors import RunError
from fastpath_sandbox.demo import pages
from tests.support import waiting
from tests.support.processor import limited

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The addresses that a browser was told to open."""
    record, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >>"{record}"\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    return lambda: record.read_text().split() if record.exists() else []


def _children(pid: int) -> list[int]:
    return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


async def _read(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url) as response:
        assert response.status == 200
        return await response.text()


async def _look(screen: str, opened: list[str]) -> None:
    """Look at the page that a browser was told to open, and at what the cluster aggregates."""
    shown = dict(re.findall(r"^(pages|cluster) +(\S+)", screen, re.MULTILINE))
    assert opened == [shown["pages"]]
    async with aiohttp.ClientSession() as session:
        page = await _read(session, shown["pages"])
        assert "web-fast" in page
        assert "web-native" in page
        apis = json.loads(await _read(session, f"{shown['cluster']}/apis/custom.metrics.k8s.io/v1beta2"))
    assert apis["groupVersion"] == "custom.metrics.k8s.io/v1beta2", "the adapter serves it"


async def test_pages_that_are_not_served_end_the_demo(opened: Callable[[], list[str]]) -> None:
    with pytest.raises(RunError, match=r"the pages are not served: .*--server"):
        async with pages.served(["--server=nowhere"]):
            pytest.fail("they are")
    assert opened() == []


@pytest.mark.parametrize(
    ("number", "interrupt"),
    [
        pytest.param(signal.SIGTERM, signal.SIG_IGN, id="SIGTERM to a background job of a script"),
        pytest.param(signal.SIGINT, signal.SIG_DFL, id="SIGINT"),
    ],
)
async def test_a_signal_to_the_demo_leaves_nothing(
    number: signal.Signals,
    interrupt: signal.Handlers,
    opened: Callable[[], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither Prometheus nor the server of the pages, nor the folder with the token."""
    temporary, screen = tmp_path / "temporary", tmp_path / "screen"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with screen.open("wb") as stdout:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "adapter", "demo", "--ui"),
            stdout=stdout,
            preexec_fn=lambda: signal.signal(signal.SIGINT, interrupt),
        )
    children: list[int] = []
    try:
        await waiting.until(opened, 40.0)
        await waiting.until(lambda: re.search(r"^pages .*\n", screen.read_text(), re.MULTILINE), 30.0)
        await _look(screen.read_text(), opened())
        children = _children(process.pid)
        assert children
        process.send_signal(number)
        async with limited(20.0):
            assert await process.wait() == 130
        for pid in children:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        assert list(temporary.glob("fastpath-demo-*")) == []
    finally:
        for pid in (process.pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await process.wait()


async def test_the_verb_ends_with_the_block(opened: Callable[[], list[str]], tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: a, user: {}}],"
        " contexts: [{name: a, context: {cluster: a, user: a}}], current-context: a}"
    )
    async with aiohttp.ClientSession() as session:
        async with pages.served([f"--kubeconfig={kubeconfig}"]) as address, session.get(address) as response:
            assert response.status == 502
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(address)
