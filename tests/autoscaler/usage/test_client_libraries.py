"""The usage that real programs expose with the client libraries of Prometheus and OpenTelemetry.

A program works for some milliseconds before each scrape. For the source that was `STEP` seconds, so a minute
of comparisons takes a second or two. What its processes really took is in /proc, to the nanosecond.
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapter.autoscaler.usage.source import OwnUsageSource
from adapter.config.scrape_keys import Access
from adapter.errors import ScrapeError
from adapter.model import pod_networks
from adapter.model.autoscaling.hpa import ContainerMetrics, ObjectMeta, PodMetrics
from adapter.model.quantity import from_milli
from adapter.model.timestamps import SECOND, Instant, Span
from adapter.scrape.http import ScrapeEndpoint
from adapter.scrape.targets import OwnUsage
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog, SourceProblems
from tests.autoscaler.metrics.test_sources import Bench, bench
from tests.autoscaler.usage.test_source import RULES
from tests.support import tools
from tests.support.clock import FakeClock
from tests.support.processor import limited
from tests.support.scaling import cpu_metric, pod
from tests.support.scraping import LoneScraper
from tests.support.world import FakePod

ROOT = Path(__file__).parents[3]
SERVERS = ROOT / "benchmarks" / "servers"
STEP, RATE, WINDOW = 3, 6, 30
"""Seconds between two scrapes, and those that a rate and the usage of the container cover."""

WORK = 75
"""Milliseconds of work before a scrape: 25 thousandths of a core."""

POD = FakePod("a", "10.0.0.1")
CPU_TIME = "sum(rate(process_cpu_time_seconds_total{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)"

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


class Served:
    """A program, its source of usages, and what its processes have taken."""

    def __init__(self, process: int, port: int, here: Bench, source: Any, scraper: LoneScraper) -> None:
        self.process = process
        self.endpoint = ScrapeEndpoint("shop", "127.0.0.1", port, Access("metrics", timeout=5.0))
        self.here = here
        self.source: OwnUsageSource = source
        self.scraper = scraper
        self.taken: list[float] = []
        """Processor seconds of the container at each step."""
        self.reading: Any = None

    def processes(self) -> Sequence[int]:
        """Return the program and its children."""
        children = Path(f"/proc/{self.process}/task/{self.process}/children").read_text().split()
        return [self.process, *map(int, children)]

    def processor_seconds(self) -> float:
        tasks = [task for number in self.processes() for task in Path(f"/proc/{number}/task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    async def answers(self) -> None:
        """Return as soon as the program does."""
        async with limited(20):
            while True:
                with contextlib.suppress(ScrapeError):
                    await self.scraper.fetch(self.endpoint)
                    return
                await asyncio.sleep(0.02)

    async def run(self, steps: int, *, work: int = WORK, at_once: int = 1, measured: bool = True) -> Any:
        """Let the program work and be scraped so often; return the last reading."""
        url = f"http://127.0.0.1:{self.endpoint.port}/work?ms={work // at_once}"
        async with aiohttp.ClientSession() as session:

            async def request() -> None:
                async with session.get(url) as response:
                    assert response.status == 200

            for _ in range(steps):
                await asyncio.gather(*(request() for _ in range(at_once)))
                self.here.clock.advance(STEP)
                body = await self.scraper.fetch(self.endpoint)
                self.taken.append(self.processor_seconds())
                self.here.here.reader.openmetrics = body.openmetrics
                self.here.here.reader.bodies = {POD.ip: body.content.decode()}
                await self.here.here.scrape()
                if measured and len(self.taken) % (WINDOW // STEP // 2) == 0:
                    await self.measure()
                self.reading = self.here.read(self.source)
        return self.reading

    def cores(self, steps: int) -> float:
        """Return the thousandths of a core that the container used over the last steps."""
        return 1000 * (self.taken[-1] - self.taken[-1 - steps]) / steps / STEP

    async def measure(self) -> None:
        """Have the metrics API serve what the container used over its window."""
        if len(self.taken) <= WINDOW // STEP:
            return
        wall = Instant(round(self.here.clock.wall() * SECOND))
        part = ContainerMetrics("app", {"cpu": from_milli(round(self.cores(WINDOW // STEP)))})
        self.here.other.usages = (PodMetrics(ObjectMeta("a", "shop"), wall, Span(WINDOW * SECOND), (part,)),)
        feed, now = self.source.slow.feed, self.here.clock.monotonic()
        await self.here.feeds._fetch(feed, 0.0)
        feed.polled, feed.due = now, now + WINDOW


@asynccontextmanager
async def served(
    *command: str, query: str = "", environment: Mapping[str, str] | None = None
) -> AsyncIterator[Served]:
    """Run a program, with {port} in its command, and a source that reads what it exposes."""
    port = tools.free_port()
    filled = [part.format(port=port) for part in command]
    more = f", interval: {STEP}s, window: {RATE}s" + (f", query: '{query}'" if query else "")
    clock, monitoring = FakeClock(), Monitoring()
    scraper = LoneScraper(
        clock,
        monitoring,
        SourceProblems(clock, ProblemLog(monitoring, clock)),
        networks=pod_networks.parse_networks(["127.0.0.0/8"]),
    )
    with subprocess.Popen(  # noqa: ASYNC220 - it only starts
        filled, cwd=ROOT, env=os.environ | (environment or {}), stderr=subprocess.DEVNULL
    ) as process:
        try:
            async with bench(RULES, more) as here, scraper:
                here.pods = [pod("a")]
                source = here.open(cpu_metric())
                here.here.scraped.want("shop/web", "shop", [OwnUsage("cpu")], [POD])
                running = Served(process.pid, port, here, source, scraper)
                await running.answers()
                yield running
        finally:
            process.terminate()


def python(name: str, *arguments: str) -> Sequence[str]:
    return [sys.executable, "-m", f"benchmarks.servers.{name}", "{port}", *arguments]


def node(name: str) -> Sequence[str]:
    """Return the command of a server of Node, whose modules `npm ci` installs."""
    if shutil.which("node") is None or not (SERVERS / "node_modules").exists():
        pytest.skip(f"Node or its modules are not installed; npm ci --prefix {SERVERS} installs these")
    return ["node", str(SERVERS / name), "{port}"]


def gunicorn() -> Sequence[str]:
    command = [sys.executable, "-m", "gunicorn", "--workers", "2", "--bind", "127.0.0.1:{port}"]
    return [*command, "--chdir", str(ROOT), "benchmarks.servers.python_server:application"]


async def check_is_counted(served: Served) -> None:
    """Check that the counter counts, and shows a step of the load within 3 % before the container does."""
    calm = await served.run(30)
    assert served.source.verdict.ratio == pytest.approx(1.0, rel=0.03), served.source.why

    steep = await served.run(RATE // STEP, work=8 * WORK, measured=False)

    assert steep.values == calm.values, "the container's usage has not come yet"
    assert steep.faster.values["a"] == pytest.approx(served.cores(RATE // STEP), rel=0.03)


async def test_prometheus_client_of_python_is_counted() -> None:
    async with served(*python("python_server")) as server:
        await check_is_counted(server)


async def test_prom_client_of_node_is_counted() -> None:
    async with served(*node("node_server.js")) as server:
        await check_is_counted(server)


async def test_the_system_metrics_of_opentelemetry_are_counted_by_a_query() -> None:
    async with served(*python("otel_server", "system"), query=CPU_TIME) as server:
        await check_is_counted(server)


async def test_two_workers_of_gunicorn_are_refused() -> None:
    async with served(*gunicorn()) as server:
        reading = await server.run(32, at_once=2)

        assert len(server.processes()) == 3
        assert reading.faster is None
        assert server.source.verdict.reason in {"NotCompared", "TooLittle", "TooMuch", "Unsteady"}


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(lambda: python("otel_server"), id="OpenTelemetry of Python"),
        pytest.param(lambda: node("otel_server.js"), id="OpenTelemetry of Node"),
    ],
)
async def test_a_program_without_the_counter_is_refused(program: Any) -> None:
    async with served(*program()) as server:
        reading = await server.run(16, work=0)

        assert reading.faster is None
        assert server.source.verdict.reason == "NotExposed"


async def test_workers_that_share_their_metrics_in_files_expose_no_counter(tmp_path: Path) -> None:
    shared = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    async with served(*gunicorn(), environment=shared) as server:
        reading = await server.run(16, work=0)

        assert reading.faster is None
        assert server.source.verdict.reason == "NotExposed"
