"""A scraper of pods on loopback, and pods that answer each request with given bytes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from adapter.config.rules_config import Access
from adapter.errors import ScrapeError
from adapter.model.clock import Clock
from adapter.model.objects import pod_networks
from adapter.scrape.bodies import BodyBuffer
from adapter.scrape.http import ScrapeEndpoint
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog, SourceProblems
from tests.support.clock import FakeClock
from tests.support.scraping import LoneScraper

LOOPBACK = pod_networks.parse_networks(["127.0.0.0/8", "::1/128"])
ACCESS = Access("metrics", timeout=5.0)


class WirePod:
    """A pod that answers each request with these bytes; `late` is sent when `pour` is set."""

    def __init__(
        self, answer: bytes | None, late: bytes = b"", namespace: str = "shop", *, closes: bool = False
    ) -> None:
        self._answer = answer
        self._late = late
        self._closes = closes
        self.pour = asyncio.Event()
        self.connections = 0
        self.open = 0
        self.endpoint = ScrapeEndpoint(namespace, "127.0.0.1", 0, ACCESS)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                if self._answer is not None:
                    writer.write(self._answer)
                if self._late:
                    await self.pour.wait()
                    writer.write(self._late)
                if self._closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["WirePod"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            self.endpoint = self.endpoint._replace(port=server.sockets[0].getsockname()[1])
            yield self


class Scraping:
    """A scraper on a clock, which stands still unless it is another."""

    def __init__(self, service_account: Path, files: int = 256, clock: Clock | None = None) -> None:
        self.clock = FakeClock()
        self.monitoring = Monitoring()
        self.faults = ProblemLog(self.monitoring, self.clock)
        self.problems = SourceProblems(self.clock, self.faults)
        self.scraper = LoneScraper(
            clock or self.clock,
            self.monitoring,
            self.problems,
            files=files,
            service_account=str(service_account),
            networks=LOOPBACK,
        )

    async def content(self, endpoint: ScrapeEndpoint, buffer: BodyBuffer | None = None) -> bytes:
        return (await self.scraper.fetch(endpoint, buffer)).content

    async def refusal(self, endpoint: ScrapeEndpoint) -> tuple[str, str]:
        with pytest.raises(ScrapeError) as raised:
            await self.scraper.fetch(endpoint)
        return raised.value.kind, str(raised.value)

    async def outcome(self, there: WirePod) -> str:
        """Return the body of the answer, or why the scrape failed."""
        try:
            return (await self.content(there.endpoint)).decode()
        except ScrapeError as error:
            return str(error)


@asynccontextmanager
async def scraping(tmp_path: Path, pods: Sequence[WirePod], files: int = 64) -> AsyncIterator[Scraping]:
    here = Scraping(tmp_path, files)
    async with AsyncExitStack() as stack:
        for pod in pods:
            await stack.enter_async_context(pod.running())
        await stack.enter_async_context(here.scraper)
        yield here
