"""A whole scaler in the test's process: `app.run_scaler` on a cluster and a Prometheus."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from adapter.compose import app
from adapter.config.options import SERVE
from adapter.server.http.endpoints import LocalPages
from tests.support.processor import limited


class RunningScaler:
    """Talks to the local pages of a scaler."""

    def __init__(
        self, session: aiohttp.ClientSession, port: int, stop: asyncio.Event, run: "asyncio.Task[None]"
    ) -> None:
        self.session = session
        self.port = port
        self.stop = stop
        self._run = run

    def at(self, port: int) -> "RunningScaler":
        """Return the same scaler, asked at another port."""
        return RunningScaler(self.session, port, self.stop, self._run)

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.session.get(f"http://127.0.0.1:{self.port}{path}") as response:
            is_json = response.content_type == "application/json"
            return response.status, await response.json() if is_json else await response.text()

    async def shows(self, words: str, path: str = "/metrics") -> None:
        """Wait until a page holds the words."""
        async with limited(30):
            while words not in str((await self.get(path))[1]):  # noqa: ASYNC110 - another page announces nothing
                await asyncio.sleep(0.05)

    async def end(self) -> None:
        """End it as SIGTERM does."""
        self.stop.set()
        await self._run


@contextlib.asynccontextmanager
async def running(
    directory: Path, rules: str, prometheus: str, kubeconfig: Path, *arguments: str
) -> AsyncIterator[RunningScaler]:
    """Run a scaler with local pages on a free port until the block ends."""
    (directory / "rules.yaml").write_text(rules)
    options, _ = SERVE.parse(
        [
            f"--config={directory / 'rules.yaml'}",
            f"--prometheus-url={prometheus}",
            f"--lister-kubeconfig={kubeconfig}",
            "--local-address=127.0.0.1:0",
            *arguments,
        ]
    )
    stop = asyncio.Event()
    listening: asyncio.Future[LocalPages] = asyncio.get_running_loop().create_future()
    run = asyncio.create_task(
        app.run_scaler(options, "test", stop, started=listening.set_result), name="scaler"
    )
    try:
        first: list[asyncio.Future[Any]] = [run, listening]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if run.done():
            await run  # says why it did not start
        async with aiohttp.ClientSession() as session:
            yield RunningScaler(session, listening.result().port, stop, run)
    finally:
        stop.set()
        await asyncio.gather(run, return_exceptions=True)
    assert run.exception() is None
