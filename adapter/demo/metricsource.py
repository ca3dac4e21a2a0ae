"""The Prometheus of the demo: a real one where it is installed, else the sandbox's small one."""

import asyncio
import contextlib
import json
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp

from adapter.errors import RunError
from adapter.sandbox.exporter import Exporter
from adapter.sandbox.prometheus import Prometheus
from adapter.sandbox.series import SeriesSet

_READY_SECONDS = 20.0


@contextlib.asynccontextmanager
async def serve(series: SeriesSet, now: Callable[[], float], directory: Path) -> AsyncIterator[tuple[str, str]]:
    """Make the series available until the block ends; gives the base URL and what answers there."""
    program = shutil.which("prometheus")
    if program is None:
        async with Prometheus(series, now) as small:
            yield small.url, "the sandbox's small Prometheus (no prometheus on this machine)"
        return
    async with (
        Exporter(series, now) as exporter,
        _running(program, _configure(exporter.address, directory), directory) as url,
    ):
        yield url, f"Prometheus ({program}), scraping every second"


def _configure(target: str, directory: Path) -> Path:
    """Write the configuration of a Prometheus that scrapes `target` and return the file."""
    directory.mkdir(parents=True, exist_ok=True)
    configuration = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "demo", "honor_labels": True, "static_configs": [{"targets": [target]}]}],
    }
    file = directory / "prometheus.yml"
    file.write_text(json.dumps(configuration))  # JSON is YAML
    return file


@contextlib.asynccontextmanager
async def _running(program: str, file: Path, directory: Path) -> AsyncIterator[str]:
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
    return "".join(log.read_text(errors="replace").strip().splitlines()[-1:]) or "no word from it"
