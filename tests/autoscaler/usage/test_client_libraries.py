"""The usage that real programs expose with the client libraries of Prometheus and OpenTelemetry.

A program works for some milliseconds before each scrape. For the source that was `STEP` seconds, so a minute
of comparisons takes a second or two. What its processes really took is in /proc, to the nanosecond.
"""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapter.autoscaler.decide.observation import Ways
from adapter.autoscaler.usage.source import OwnUsageSource
from adapter.config.rules_config import Access
from adapter.errors import ScrapeError
from adapter.model.objects import pod_networks
from adapter.scrape.http import ScrapeEndpoint
from adapter.scrape.readings import OwnUsage
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog, SourceProblems
from tests.autoscaler.inputs.sources_bench import SourceBench, bench
from tests.autoscaler.usage import counted
from tests.autoscaler.usage.counted import PROGRAMS
from tests.autoscaler.usage.test_source import RULES, serve
from tests.support.clock import FakeClock
from tests.support.processor import limited
from tests.support.scaling import cpu_metric, pod
from tests.support.scraping import LoneScraper
from tests.support.world import scraped_pod

STEP, RATE, WINDOW = 3, 6, 30
"""Seconds between two scrapes, and those that a rate and the usage of the container cover."""

AMOUNT = 0.075
"""Processor seconds of work before a scrape: 25 thousandths of a core."""

WORK, GO_WORK = "/work?ms=15", "/api/v1/query?query=count_over_time(vector(1)[5h:1s])"

POD = scraped_pod("a", "10.0.0.1")
CPU_TIME = "sum(rate(process_cpu_time_seconds_total{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)"

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


class MeasuredProgram:
    """A program, its source of usages, and what its processes have taken."""

    def __init__(self, process: int, port: int, here: SourceBench, source: Any, scraper: LoneScraper) -> None:
        self.process = process
        self.endpoint = ScrapeEndpoint("shop", "127.0.0.1", port, Access("metrics", timeout=5.0))
        self.here = here
        self.source: OwnUsageSource = source
        self.scraper = scraper
        self.work = WORK
        self.taken: list[float] = []
        """Processor seconds of the container at each step."""
        self.reading: Any = None

    def processes(self) -> Sequence[int]:
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

    async def run(self, steps: int, *, times: int = 1, at_once: int = 1, measured: bool = True) -> Any:
        """Let the program do so much work and be scraped, so often; return the last reading."""
        url = f"http://127.0.0.1:{self.endpoint.port}{self.work}"
        async with aiohttp.ClientSession() as session:

            async def request() -> None:
                async with session.get(url) as response:
                    # Prometheus exposes its metrics before it is ready; the work goes on until it is done
                    assert response.status in {200, 503}

            for _ in range(steps):
                end = self.processor_seconds() + times * AMOUNT
                while times and self.processor_seconds() < end:
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
        steps = WINDOW // STEP
        if len(self.taken) > steps:
            await serve(self.here, self.source, {"a": {"app": self.cores(steps) / 1000}}, WINDOW, WINDOW)


@asynccontextmanager
async def served(
    name: str, folder: Path, *, query: str = "", environment: Mapping[str, str] | None = None
) -> AsyncIterator[MeasuredProgram]:
    """Run a server, and a source that reads what it exposes."""
    program = PROGRAMS[name]
    if missing := program.missing():
        pytest.skip(missing)
    program.prepare(folder)
    port = counted.free_port()
    more = f", interval: {STEP}s, window: {RATE}s" + (f", query: '{query}'" if query else "")
    clock, monitoring = FakeClock(), Monitoring()
    scraper = LoneScraper(
        clock,
        monitoring,
        SourceProblems(clock, ProblemLog(monitoring, clock)),
        networks=pod_networks.parse_networks(["127.0.0.0/8"]),
    )
    with subprocess.Popen(  # noqa: ASYNC220 - it only starts
        program.command(port, folder),
        cwd=counted.ROOT,
        env=os.environ | (environment or {}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            async with bench(RULES, more) as here, scraper:
                here.pods = [pod("a")]
                source = here.open(cpu_metric())
                here.here.scraped.want("shop/web", "shop", [OwnUsage.CPU], [POD])
                running = MeasuredProgram(process.pid, port, here, source, scraper)
                await running.answers()
                yield running
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("name", "work", "query"),
    [
        pytest.param("go_prometheus", GO_WORK, "", id="Go"),
        pytest.param("python", WORK, "", id="Python"),
        pytest.param("node", WORK, "", id="Node"),
        pytest.param("java", WORK, "", id="Java"),
        pytest.param("otel_query", WORK, CPU_TIME, id="OpenTelemetry by a query"),
    ],
)
async def test_the_counter_of_one_process_shows_a_step_within_3_percent(
    tmp_path: Path, name: str, work: str, query: str
) -> None:
    async with served(name, tmp_path, query=query) as server:
        server.work = work
        calm = await server.run(30)
        assert server.source.verdict.ratio == pytest.approx(1.0, rel=0.03), server.source.why

        steep = await server.run(RATE // STEP, times=8, measured=False)

        assert steep.ways[0].values == calm.values, "the container's usage has not come yet"
        assert steep.ways[1].values["a"] == pytest.approx(server.cores(RATE // STEP), rel=0.03)


async def test_two_workers_of_gunicorn_are_refused(tmp_path: Path) -> None:
    async with served("python_workers", tmp_path) as server:
        reading = await server.run(30, at_once=2)

        assert len(server.processes()) == 3
        assert not isinstance(reading, Ways)
        assert server.source.verdict.reason in {"NotCompared", "TooLittle", "TooMuch", "Unsteady"}


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        pytest.param("otel", False, id="OpenTelemetry of Python"),
        pytest.param("otel_node", False, id="OpenTelemetry of Node"),
        pytest.param("python_workers", True, id="workers that share their metrics in files"),
    ],
)
async def test_a_program_that_exposes_no_counter_is_refused(
    tmp_path: Path, name: str, *, shared: bool
) -> None:
    environment = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)} if shared else {}
    async with served(name, tmp_path, environment=environment) as server:
        reading = await server.run(16, times=0)

        assert not isinstance(reading, Ways)
        assert server.source.verdict.reason == "NotExposed"
