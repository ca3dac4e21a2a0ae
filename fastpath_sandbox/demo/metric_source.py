"""The Prometheus of the demo: a real one if it is installed, else the sandbox's.

Both read the same series at the same intervals.
"""

import asyncio
import contextlib
import json
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import aiohttp

from adapter.errors import RunError
from fastpath_sandbox.prometheus.series import Exporter, Point, Series, SeriesSet
from fastpath_sandbox.prometheus.server import Prometheus

_READY_SECONDS = 20.0


class Job(NamedTuple):
    """A scrape job of a Prometheus; `interval` is in seconds.

    Targets that come and go are in a file, in the form of ``file_sd_configs``.
    """

    name: str
    targets: Sequence[str] | Path
    interval: float


@contextlib.asynccontextmanager
async def serve(
    worlds: Sequence[SeriesSet], now: Callable[[], float], directory: Path
) -> AsyncIterator[tuple[str, str]]:
    """Serve the series, each set scraped at its own interval; yield the base URL and a description.

    No series is in two of the sets.
    """
    program = shutil.which("prometheus")
    if program is None:
        async with Prometheus(_JoinedSeries(worlds), now) as small:
            yield small.url, "the sandbox's small Prometheus (no prometheus on this machine)"
        return
    async with contextlib.AsyncExitStack() as stack:
        jobs = []
        for number, world in enumerate(worlds):
            exporter = await stack.enter_async_context(Exporter(world, now))
            jobs.append(Job(f"world-{number}", [exporter.address], world.interval))
        yield await stack.enter_async_context(running(program, jobs, directory)), f"Prometheus ({program})"


class _JoinedSeries(SeriesSet):
    """Several sets as one, each sampled at its own interval."""

    def __init__(self, worlds: Sequence[SeriesSet]) -> None:
        super().__init__(interval=min(world.interval for world in worlds))
        self._worlds = worlds

    def __iter__(self) -> Iterator[Series]:
        return (series for world in self._worlds for series in world)

    def named(self, name: str) -> list[Series]:
        return [series for world in self._worlds for series in world.named(name)]

    def samples(self, series: Series, start: float, end: float) -> list[Point]:
        return self._world_with(series).samples(series, start, end)

    def has_samples(self, series: Series, start: float, end: float) -> bool:
        return self._world_with(series).has_samples(series, start, end)

    def latest(self, series: Series, now: float, lookback: float) -> Point | None:
        return self._world_with(series).latest(series, now, lookback)

    def _world_with(self, series: Series) -> SeriesSet:
        return next(
            world for world in self._worlds if any(other is series for other in world.named(series.name))
        )


def _configure(jobs: Sequence[Job], directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    configuration = {
        "scrape_configs": [
            {
                "job_name": job.name,
                "honor_labels": True,
                "scrape_interval": f"{round(job.interval * 1000)}ms",
                "scrape_timeout": f"{round(min(job.interval, 10.0) * 1000)}ms",
                **(
                    {"file_sd_configs": [{"files": [str(job.targets)]}]}
                    if isinstance(job.targets, Path)
                    else {"static_configs": [{"targets": list(job.targets)}]}
                ),
            }
            for job in jobs
        ]
    }
    file = directory / "prometheus.yml"
    file.write_text(json.dumps(configuration))  # JSON is YAML
    return file


@contextlib.asynccontextmanager
async def running(program: str, jobs: Sequence[Job], directory: Path) -> AsyncIterator[str]:
    """Run a real Prometheus; yield its base URL once it is ready.

    It discovers its targets 5 s after its start, and scrapes each at an offset of its own within the
    interval.
    """
    file = _configure(jobs, directory)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (directory / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--config.file={file}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        base = f"http://127.0.0.1:{port}"
        await _wait_ready(base, process, directory / "log")
        yield base
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _wait_ready(base: str, process: asyncio.subprocess.Process, log: Path) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_READY_SECONDS), aiohttp.ClientSession() as session:
            while process.returncode is None:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"{base}/-/ready") as response:
                        if response.status == 200:
                            return
                await asyncio.sleep(0.05)
    raise RunError(f"Prometheus did not start: {_last_line(log)}")


def _last_line(log: Path) -> str:
    return "".join(log.read_text(errors="replace").strip().splitlines()[-1:]) or "it printed nothing"
