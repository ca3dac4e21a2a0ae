"""How exactly processes tell their own CPU and memory: `scripts/bench counters`.

Real servers run in a control group each, under a load of requests. Once a second their endpoint is scraped,
and the control group says what they really used. The figures are the errors of a rate over 2, 3, 5 and 10 s
against the truth over the same time: as the counter shows it, and calibrated as the scaler does it, against
means over `CONTAINER_WINDOW` that come every `CONTAINER_INTERVAL`. Where the scaler refuses the counter, a
note says why.

The loads of a program run side by side, each on a process of its own: `steady`, `step` (a third, then three
times as much), `burst` (on and off at random moments), and `litter` (garbage that the collector of the
language has to find). Needs root, for the control groups. A program that this machine cannot run is skipped.
"""

import asyncio
import contextlib
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import aiohttp

from adapter.autoscaler.usage import calibration
from adapter.autoscaler.usage.calibration import Comparison
from benchmarks import common, counted
from benchmarks.common import Goal, Report, percentile
from benchmarks.counted import PROGRAMS, Program

WINDOWS = (2, 3, 4, 5, 10)
_SHIPPED = 4
"""The window of the goals, which is the default of own usage: seconds."""
CONTAINER_WINDOW, CONTAINER_INTERVAL = 30, 15
_GROUPS = Path("/sys/fs/cgroup")
_START = 20
"""The seconds of a start."""

_LEAST_CORES = 0.05
"""Rates are compared while the truth is above it."""

_MOMENT, _TRIES = 0.01, 5
"""The processor seconds within which a scrape is of one moment, and how often that is tried."""

_EXACT = 0.03
"""The goal of the errors of calibrated rates."""


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

    def start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        members = " ".join(str(folder / "cgroup.procs") for folder in {self._cpu, self._memory})
        enter = f'for file in {members}; do echo $$ > $file; done; exec "$@"'
        return subprocess.Popen(
            ["/bin/sh", "-c", enter, "sh", *command],
            cwd=common.ROOT,
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
        """End what still runs in the group, such as a process beside a server, and remove it."""
        while members := (self._cpu / "cgroup.procs").read_text().split():
            for member in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(member), signal.SIGKILL)
            time.sleep(0.01)
        for folder in {self._cpu, self._memory}:
            with contextlib.suppress(OSError):
                folder.rmdir()


# -- the load ------------------------------------------------------------------------------------------------


def _steady(_: float) -> float:
    return 1.0


def _step(second: float) -> float:
    return 0.5 if second % 60 < 30 else 1.5


def _burst(second: float) -> float:
    return 2.0 if random.Random(int(second / 1.5)).random() < 0.5 else 0.0


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
    draw = random.Random(1)
    started = time.perf_counter()
    async with asyncio.TaskGroup() as sending:
        while True:
            wanted = rate * load(time.perf_counter() - started)
            await asyncio.sleep(draw.expovariate(wanted) if wanted else 0.1)
            if wanted:
                sending.create_task(_request(session, url))


async def _request(session: aiohttp.ClientSession, url: str) -> None:
    now = common.wall()
    url = url.replace("{start}", f"{now - 60:.0f}").replace("{now}", f"{now:.0f}")
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        if url.endswith("/range"):  # etcd: the least value of all keys
            wanted = {"key": "AA==", "range_end": "AA==", "limit": 1, "sort_target": "VALUE"}
            async with session.post(url, json=wanted | {"sort_order": "ASCEND"}) as response:
                await response.read()
        else:
            async with session.get(url) as response:
                await response.read()


async def _fill(session: aiohttp.ClientSession, base: str, program: Program) -> None:
    """Give etcd the keys that its load reads."""
    if program.work.endswith("/range"):
        for number in range(counted.ETCD_KEYS):
            pair = {"key": f"{number:08}", "value": "QUFB" * 256}
            async with session.post(f"{base}/v3/kv/put", json=pair) as response:
                response.raise_for_status()


# -- the samples ---------------------------------------------------------------------------------------------


async def _scrape(session: aiohttp.ClientSession, url: str, group: Group, counter: str) -> Sample | None:
    """Return what process and control group say at about one moment, None if there is no answer."""
    for _ in range(_TRIES):
        found = await _scrape_once(session, url, group, counter)
        if found is None or found[1] <= _MOMENT:
            break
    return None if found is None else found[0]


async def _scrape_once(
    session: aiohttp.ClientSession, url: str, group: Group, counter: str
) -> tuple[Sample, float] | None:
    """Return a sample, and the processor seconds that passed meanwhile."""
    before, start = group.processor_seconds(), time.perf_counter()
    try:
        async with session.get(url) as response:
            text = await response.text()
    except (aiohttp.ClientError, TimeoutError):
        return None
    after, end = group.processor_seconds(), time.perf_counter()
    shown = _total(text, counter), _total(text, counted.OWN_RESIDENT)
    sample = Sample((start + end) / 2, shown[0], (before + after) / 2, shown[1], group.working_set())
    return sample, after - before


def _total(text: str, name: str) -> float | None:
    values = [float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)", text, re.MULTILINE)]
    return sum(values) if values else None


async def _watch(
    url: str, program: Program, load: str, group: Group, settings: Mapping[str, float]
) -> Sequence[Sample]:
    """Return the samples under a load, from the first answer on."""
    samples: list[Sample] = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session:
        while await _scrape(session, f"{url}/metrics", group, program.counter) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await _fill(session, url, program)
        path = program.litter if load == "litter" else program.work
        loading = asyncio.create_task(_load(session, url + path, LOADS[load], settings["rate"]))
        started = time.perf_counter()
        while (now := time.perf_counter()) < started + settings["seconds"]:
            sample = await _scrape(session, f"{url}/metrics", group, program.counter)
            if sample is not None:
                samples.append(sample)
            await asyncio.sleep(max(0.0, now + 1.0 - time.perf_counter()))
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
    return samples


async def _run(name: str, load: str, settings: Mapping[str, float]) -> Sequence[Sample]:
    """Start a program in a group of its own, and return its samples under a load."""
    program, group = PROGRAMS[name], Group(f"fastpath-{name}-{load}")
    with tempfile.TemporaryDirectory() as folder:
        program.prepare(Path(folder))
        port = counted.free_port()
        process = group.start(program.command(port, Path(folder)))
        try:
            return without_resets(await _watch(f"http://127.0.0.1:{port}", program, load, group, settings))
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait)
            group.remove()


def without_resets(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return samples whose counter never falls: after a smaller value it goes on from zero, as in a rate."""
    total, last = 0.0, None
    found = []
    for sample in samples:
        if sample.counter is not None:
            if last is not None:
                total += sample.counter - last if sample.counter >= last else sample.counter
            last = sample.counter
        found.append(sample._replace(counter=None if sample.counter is None else total))
    return found


# -- the errors ----------------------------------------------------------------------------------------------


class Judged(NamedTuple):
    """What the scaler thinks of a counter at each sample: the ratio that counts, None without one."""

    ratios: Sequence[float | None]
    last: calibration.CalibrationVerdict
    middle: float | None


def judge(samples: Sequence[Sample], counter: str) -> Judged:
    """Return what the scaler would have thought, had it compared means with the control group's."""
    state = calibration.UNKNOWN
    ratios: list[float | None] = []
    for last, _ in enumerate(samples):
        means = rates(samples, last - CONTAINER_WINDOW, last) if last % CONTAINER_INTERVAL == 0 else None
        if means is not None:
            counter_mean, container_mean = means
            comparison = Comparison("server", container_mean, counter_mean, counter_mean, counter_mean)
            state = calibration.follow(state, [comparison])
        ratios.append(calibration.judge(state, counter).ratio)
    middle = statistics.median(state.ratios) if state.ratios else None
    return Judged(ratios, calibration.judge(state, counter), middle)


def errors(samples: Sequence[Sample], window: int, ratios: Sequence[float | None]) -> Iterator[float]:
    """Yield the relative errors of a rate over `window` scrapes, where there is a ratio."""
    for last, ratio in enumerate(ratios):
        pair = rates(samples, last - window, last)
        if pair is not None and ratio is not None:
            yield abs(ratio * pair[0] / pair[1] - 1)


def rates(samples: Sequence[Sample], first: int, last: int) -> tuple[float, float] | None:
    """Return the rates of the counter and of the truth between two samples; None without a usage of note."""
    if first < 0:
        return None
    one, other = samples[first], samples[last]
    if one.counter is None or other.counter is None:
        return None
    passed = other.time - one.time
    truth = (other.truth - one.truth) / passed
    return ((other.counter - one.counter) / passed, truth) if truth > _LEAST_CORES else None


def _add(report: Report, name: str, runs: Mapping[str, Sequence[Sample]]) -> None:
    """Add the figures of a program: of all its loads together, and the exactness of each."""
    judged = {load: judge(samples, PROGRAMS[name].counter) for load, samples in runs.items()}
    cores = [
        (samples[-1].truth - samples[0].truth) / (samples[-1].time - samples[0].time)
        for samples in runs.values()
    ]
    report.add(**{f"{name}_cores": statistics.fmean(cores)})
    report.add(**{f"{name}_start_cores": max(_start(samples) for samples in runs.values())})
    for window in WINDOWS:
        plain = [
            error for samples in runs.values() for error in errors(samples, window, [1.0] * len(samples))
        ]
        if plain:
            report.add(**{f"{name}_{window}s_p95_share": percentile(plain, 0.95)})
        exact = {load: list(errors(runs[load], window, found.ratios)) for load, found in judged.items()}
        if pooled := [error for found in exact.values() for error in found]:
            report.add(**{f"{name}_{window}s_calibrated_p95_share": percentile(pooled, 0.95)})
            if window == _SHIPPED:
                each = {load: percentile(found, 0.95) for load, found in exact.items() if found}
                report.add(
                    **{f"{name}_{load}_{window}s_calibrated_p95_share": value for load, value in each.items()}
                )
    if middles := [found.middle for found in judged.values() if found.middle is not None]:
        report.add(**{f"{name}_ratio": statistics.median(middles)})
    memory = [one.used / one.resident for samples in runs.values() for one in samples if one.resident]
    if memory:
        report.add(**{f"{name}_memory_ratio": statistics.median(memory)})
    shown = any(sample.counter is not None for samples in runs.values() for sample in samples)
    why = [found.last.why for found in judged.values()]
    report.notes[name] = (
        ("" if "" in why else why[0]) if shown else f"no pod exposes {PROGRAMS[name].counter}"
    )


def _start(samples: Sequence[Sample]) -> float:
    """Return the highest rate over 5 s of the first seconds, from the truth."""
    early = samples[: _START + 1]
    return max(
        (
            (early[last].truth - early[last - 5].truth) / (early[last].time - early[last - 5].time)
            for last in range(5, len(early))
        ),
        default=0.0,
    )


async def _run_all(
    name: str, loads: Sequence[str], settings: Mapping[str, float]
) -> Mapping[str, Sequence[Sample]]:
    found = await asyncio.gather(*(_run(name, load, settings) for load in loads))
    return dict(zip(loads, found, strict=True))


def main() -> None:
    sizes = common.parse_sizes(
        "Own counters of processes.",
        seconds=100.0,
        rate=25.0,
        programs=",".join(PROGRAMS),
        loads=",".join(LOADS),
    )
    goals = {
        f"{name}_{_SHIPPED}s_calibrated_p95_share": Goal(
            f"p95 of the error of CPU over {_SHIPPED} s, {PROGRAMS[name].about}", _EXACT, ""
        )
        for name in counted.COUNTED
    }
    report = Report("counters", vars(sizes), {})
    if os.geteuid() or not os.access(_GROUPS, os.W_OK):
        sys.exit("benchmarks.counters: needs root and writable control groups in /sys/fs/cgroup")
    for name in str(sizes.programs).split(","):
        if missing := PROGRAMS[name].missing():
            print(f"{name}: skipped: {missing}", flush=True)
            continue
        runs = asyncio.run(_run_all(name, str(sizes.loads).split(","), vars(sizes)))
        _add(report, name, runs)
    report.goals = {name: goal for name, goal in goals.items() if name in report.figures}
    report.show()


if __name__ == "__main__":
    main()
