"""How exactly processes tell their own CPU and memory: `python -m benchmarks.counters`.

Real programs run in a control group each, under a load of requests. Once a second their endpoint is scraped,
and the control group says what they really used. The figures are the errors of a rate over 2, 3, 5 and 10 s
against the truth over the same time: as the counter shows it, and *calibrated* by the ratio of both over the
minute before.

The loads: `steady`, `step` (a third, then three times as much), `burst` (on and off at random moments), and
`litter` (garbage that the collector of the language has to find).
"""

import asyncio
import contextlib
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import common
from benchmarks.common import Report

WINDOWS = (2, 3, 5, 10)
_SERVERS = Path(__file__).with_name("servers")
_GROUPS = Path("/sys/fs/cgroup")
_MINUTE = 60.0


class Sample(NamedTuple):
    """A scrape: its time, and processor seconds and bytes by the process and by its control group."""

    time: float
    counter: float | None
    truth: float
    resident: float | None
    used: float


class Group:
    """A control group; the processes of `start` are its members from their first instruction."""

    def __init__(self, name: str) -> None:
        unified = (_GROUPS / "cgroup.controllers").exists()
        self._cpu = _GROUPS / name if unified else _GROUPS / "cpuacct" / name
        self._memory = _GROUPS / name if unified else _GROUPS / "memory" / name
        self._unified = unified
        for folder in {self._cpu, self._memory}:
            folder.mkdir(exist_ok=True)

    def start(self, command: Sequence[str], **environment: str) -> subprocess.Popen[bytes]:
        members = " ".join(str(folder / "cgroup.procs") for folder in {self._cpu, self._memory})
        enter = f'for file in {members}; do echo $$ > $file; done; exec "$@"'
        return subprocess.Popen(
            ["/bin/sh", "-c", enter, "sh", *command],
            env=os.environ | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def processor_seconds(self) -> float:
        if not self._unified:
            return int((self._cpu / "cpuacct.usage").read_text()) / 1e9
        stat = dict(line.split() for line in (self._cpu / "cpu.stat").read_text().splitlines())
        return int(stat["usage_usec"]) / 1e6

    def working_set(self) -> float:
        """Return the bytes that the kubelet reports: without inactive file pages."""
        stat = dict(line.split() for line in (self._memory / "memory.stat").read_text().splitlines())
        usage = self._memory / ("memory.current" if self._unified else "memory.usage_in_bytes")
        inactive = stat["inactive_file" if self._unified else "total_inactive_file"]
        return int(usage.read_text()) - int(inactive)

    def remove(self) -> None:
        for folder in {self._cpu, self._memory}:
            with contextlib.suppress(OSError):
                folder.rmdir()


@dataclass(frozen=True, slots=True)
class Program:
    """A server: its command for a port and a folder, and the path that makes it work for some milliseconds."""

    command: Callable[[int, Path], list[str]]
    work: str = "/work?ms=8"
    litter: str = "/litter?kb=2000"


def _python(*command: str) -> Callable[[int, Path], list[str]]:
    return lambda port, _: [sys.executable, *(part.format(port=port) for part in command)]


def _prometheus(port: int, folder: Path) -> list[str]:
    config = folder / "prometheus.yml"
    own = f"scrape_configs: [{{job_name: own, scrape_interval: 1s, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]"
    config.write_text(own)
    return [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]


def _etcd(port: int, folder: Path) -> list[str]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{_free_port()}"
    return [
        "etcd",
        f"--data-dir={folder}/data",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]


_RANGE = '/api/v1/query_range?query=sum(rate({__name__=~".%2B"}[10s]))&start={start}&end={now}&step=1'
PROGRAMS: Mapping[str, Program] = {
    "go_prometheus": Program(_prometheus, _RANGE, _RANGE),
    "go_etcd": Program(_etcd, "/v3/kv/range", "/v3/kv/range"),
    "python": Program(_python(str(_SERVERS / "python_server.py"), "{port}")),
    "python_workers": Program(
        _python(
            *("-m", "gunicorn", "--workers", "2", "--bind", "127.0.0.1:{port}"),
            *("--chdir", str(_SERVERS), "python_server:application"),
        )
    ),
    "node": Program(
        lambda port, _: ["node", str(_SERVERS / "node_server.js"), str(port), os.environ["NODE_MODULES"]]
    ),
    "java": Program(lambda port, _: ["java", "-cp", os.environ["JAVA_CLASSES"], "CountedServer", str(port)]),
}


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


# -- the load ------------------------------------------------------------------------------------------------


def _steady(_: float) -> float:
    return 1.0


def _step(second: float) -> float:
    return 0.5 if second % 60 < 30 else 1.5


def _burst(second: float) -> float:
    return 2.0 if random.Random(int(second / 1.5)).random() < 0.5 else 0.0  # noqa: S311 - a load, no secret


LOADS: Mapping[str, Callable[[float], float]] = {
    "steady": _steady,
    "step": _step,
    "burst": _burst,
    "litter": _steady,
}
"""The requests at a second, as a multiple of the usual rate."""


async def _load(
    session: aiohttp.ClientSession, url: str, load: Callable[[float], float], rate: float
) -> None:
    """Send requests at random moments, as many callers do, until it is cancelled."""
    draw = random.Random(1)  # noqa: S311 - as above
    started = time.monotonic()
    async with asyncio.TaskGroup() as sending:
        while True:
            wanted = rate * load(time.monotonic() - started)
            await asyncio.sleep(draw.expovariate(wanted) if wanted else 0.1)
            if wanted:
                sending.create_task(_request(session, url))


async def _request(session: aiohttp.ClientSession, url: str) -> None:
    now = time.time()
    url = url.replace("{start}", f"{now - 60:.0f}").replace("{now}", f"{now:.0f}")
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        if url.endswith("/range"):  # etcd: a prefix that holds all keys
            async with session.post(url, json={"key": "AA==", "range_end": "AA=="}) as response:
                await response.read()
        else:
            async with session.get(url) as response:
                await response.read()


# -- the samples ---------------------------------------------------------------------------------------------


async def _scrape(session: aiohttp.ClientSession, url: str, group: Group) -> Sample | None:
    """Return what process and control group say at one moment, None if it took too long to be one."""
    before, start = group.processor_seconds(), time.monotonic()
    try:
        async with session.get(url) as response:
            text = await response.text()
    except (aiohttp.ClientError, TimeoutError):
        return None
    after, end = group.processor_seconds(), time.monotonic()
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values[sample.name] = values.get(sample.name, 0.0) + sample.value
    return Sample(
        (start + end) / 2,
        values.get("process_cpu_seconds_total"),
        (before + after) / 2,
        values.get("process_resident_memory_bytes"),
        group.working_set(),
    )


async def _watch(
    port: int, program: Program, name: str, group: Group, seconds: float, rate: float
) -> list[Sample]:
    base = f"http://127.0.0.1:{port}"
    samples: list[Sample] = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session:
        while await _scrape(session, f"{base}/metrics", group) is None:
            await asyncio.sleep(0.1)
        path = program.litter if name == "litter" else program.work
        load = asyncio.create_task(_load(session, base + path, LOADS[name], rate))
        started = time.monotonic()
        while (now := time.monotonic()) < started + seconds:
            sample = await _scrape(session, f"{base}/metrics", group)
            if sample is not None:
                samples.append(sample)
            await asyncio.sleep(max(0.0, now + 1.0 - time.monotonic()))
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
    return samples


# -- the errors ----------------------------------------------------------------------------------------------


def errors(samples: Sequence[Sample], window: int) -> tuple[list[float], list[float]]:
    """Return the relative errors of a rate over `window` scrapes, as the counter shows it and calibrated."""
    plain: list[float] = []
    calibrated: list[float] = []
    for last in range(len(samples)):
        pair = _rates(samples, last - window, last)
        before = _rates(samples, last - window - round(_MINUTE), last - window)
        if pair is None:
            continue
        plain.append(abs(pair[0] / pair[1] - 1))
        if before is not None and before[0] > 0:
            calibrated.append(abs(pair[0] * before[1] / before[0] / pair[1] - 1))
    return plain, calibrated


def _rates(samples: Sequence[Sample], first: int, last: int) -> tuple[float, float] | None:
    """Return the rates of the counter and of the truth between two samples; None without a usage of note."""
    if first < 0:
        return None
    one, other = samples[first], samples[last]
    if one.counter is None or other.counter is None:
        return None
    passed = other.time - one.time
    truth = (other.truth - one.truth) / passed
    return ((other.counter - one.counter) / passed, truth) if truth > 0.02 else None


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    sizes = common.parse_sizes(
        "Own counters of processes.",
        seconds=180.0,
        rate=40.0,
        programs=",".join(PROGRAMS),
        loads=",".join(LOADS),
    )
    report = Report("counters", vars(sizes), {})
    for program in str(sizes.programs).split(","):
        for load in str(sizes.loads).split(","):
            group = Group(f"fastpath-{program}")
            with tempfile.TemporaryDirectory() as folder:
                port = _free_port()
                process = group.start(PROGRAMS[program].command(port, Path(folder)))
                try:
                    samples = asyncio.run(
                        _watch(port, PROGRAMS[program], load, group, float(sizes.seconds), float(sizes.rate))
                    )
                finally:
                    process.terminate()
                    process.wait()
                    group.remove()
            _add(report, f"{program}_{load}", samples)
    report.show()


def _add(report: Report, name: str, samples: Sequence[Sample]) -> None:
    truth = (samples[-1].truth - samples[0].truth) / (samples[-1].time - samples[0].time)
    report.add(**{f"{name}_cores": truth})
    for window in WINDOWS:
        for kind, found in zip(("", "_calibrated"), errors(samples, window), strict=True):
            if found:
                report.add(**{f"{name}_{window}s{kind}_p95_share": _percentile(found, 0.95)})
    memory = [sample.resident / sample.used for sample in samples if sample.resident is not None]
    if memory:
        report.add(**{f"{name}_memory_ratio": statistics.median(memory)})


if __name__ == "__main__":
    main()
