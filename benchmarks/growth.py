"""How cost grows with size: requests, autoscalers, pods, rules and series, each doubled six times.

Cost is the processor time of the measured program and its children, so that a busy machine gives valid
figures too; for pods and series also memory. The fixed cost (the start of Python, of the discovery worker) is
measured at the smallest size and subtracted. The exponent is the slope of a line through the logarithms of
size and cost, over the upper half of the sizes: 1 is linear growth. At the smaller sizes the fixed cost hides
the growth.

Each case takes the least of some runs: other programs can only add to the cost.
"""

import asyncio
import gc
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import uvloop
import yaml

from adapter.prometheus.response import ResponseDecoder
from benchmarks import common, load
from benchmarks.common import ROOT, Goal, Report
from benchmarks.hpas import rules
from benchmarks.load import Connection
from benchmarks.serve import path_of
from benchmarks.stage import Adapter, App, Stage, make_apps, processor_seconds

DOUBLINGS = 6
UPPER = DOUBLINGS // 2 + 1
"""How many of the sizes, the largest, tell the exponent."""
LIMIT = 1.1
"""The exponent that still counts as linear: what is measured is never on a line exactly."""
_LIMITS = {"ticks_cpu_exponent": 1.05}

_CONNECTIONS = 8
_METRIC = "http_requests_total"
_SERVED = "http_requests_per_second"
_STALE_SECONDS = 1.2  # a value is kept for one
_CHUNK = 64 * 1024
_UNSURE = 0.01  # of what is fixed: how exactly it is known

_SMALLEST = {
    "requests": 500,
    "autoscalers": 25,
    "ticks": 100,
    "pods": 1000,
    "rules": 32,
    "series": 10_000,
    "swept": 2000,
}
ABOUT = {
    "requests": "warm requests",
    "autoscalers": "autoscalers that request metrics",
    "ticks": "autoscalers in a decision round",
    "pods": "watched pods",
    "rules": "rules",
    "series": "discovered series",
    "swept": "series in a query response",
}
_WHAT = {"cpu_seconds": "processor time", "memory_mib": "memory"}


@dataclass(slots=True)
class Cost:
    """The cost of one size: processor seconds and, for some cases, memory."""

    cpu_seconds: float
    memory_mib: float | None = None


@dataclass(slots=True)
class Growth:
    """The measurements of one case: costs by size, and the fixed cost."""

    sizes: Sequence[int]
    fixed: Cost = field(default_factory=lambda: Cost(0.0, 0.0))
    costs: dict[int, Cost] = field(default_factory=dict)

    def points(self, name: str) -> list[tuple[int, float]]:
        """Return sizes and costs without the fixed cost; below a hundredth of it nothing is measurable."""
        fixed = getattr(self.fixed, name) or 0.0
        return [
            (size, max(value - fixed, _UNSURE * fixed, 1e-9))
            for size, cost in self.costs.items()
            if (value := getattr(cost, name)) is not None
        ]


def sizes_from(smallest: int) -> list[int]:
    """Return a size, doubled again and again."""
    return [smallest << doubling for doubling in range(DOUBLINGS + 1)]


def exponent(points: Sequence[tuple[int, float]]) -> float:
    """Return how cost grows with size over the last of the points: 1 is linear, 2 quadratic."""
    upper = points[-UPPER:]
    sizes, costs = zip(*((math.log(size), math.log(cost)) for size, cost in upper), strict=True)
    return statistics.linear_regression(sizes, costs).slope


def least(measure: Callable[[], Cost], runs: int) -> Cost:
    """Return the least cost of some runs."""
    found = [measure() for _ in range(runs)]
    memories = [cost.memory_mib for cost in found if cost.memory_mib is not None]
    return Cost(min(cost.cpu_seconds for cost in found), min(memories, default=None))


def measure_all(smallest: int, runs: int, measure: Callable[[int], Cost], *, fixed: bool = False) -> Growth:
    """Return the least costs of each size, and if there is a `fixed` cost that of size 1."""
    growth = Growth(sizes_from(smallest))
    if fixed:
        growth.fixed = least(partial(measure, 1), runs)
    growth.costs |= {size: least(partial(measure, size), runs) for size in growth.sizes}
    return growth


def requests(smallest: int, runs: int) -> Growth:
    """Warm requests of 50 autoscalers over 8 connections."""
    apps = make_apps(50, 10)
    with Stage() as stage:
        adapter = _serve(stage, apps, 10)
        asked = [path_of(app, _SERVED) for app in apps]
        uvloop.run(_ask(stage, adapter, asked, len(asked)))
        return measure_all(smallest, runs, partial(_cost_of, stage, adapter, asked))


def autoscalers(smallest: int, runs: int) -> Growth:
    """Autoscalers of five pods with one request each for expired values."""
    most = sizes_from(smallest)[-1]
    apps = make_apps(most, 5)
    with Stage() as stage:
        adapter = _serve(stage, apps, 5)

        def period(count: int) -> Cost:
            time.sleep(_STALE_SECONDS)
            return _cost_of(stage, adapter, [path_of(app, _SERVED) for app in apps[:count]], count)

        period(most)
        return measure_all(smallest, runs, period)


def ticks(smallest: int, runs: int) -> Growth:
    """Autoscalers of five pods in one tick of the scaler, and the memory of their process."""

    def tick(count: int) -> Cost:
        command = [sys.executable, "-m", "benchmarks.tick", "--autoscalers", str(count), "--pods", "5"]
        done = subprocess.run(
            [*command, "--ticks", "3", "--runs", "1"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
        found = json.loads(done.stdout.splitlines()[-1])["figures"]
        return Cost(found["tick_steady_seconds"], found["peak_memory_mib"])

    growth = measure_all(smallest, runs, tick)
    growth.fixed = Cost(0.0, tick(1).memory_mib)
    return growth


def pods(smallest: int, runs: int) -> Growth:
    def watch(count: int) -> Cost:
        with Stage() as stage:
            kubeconfig = stage.start_cluster(-(-count // 10), min(count, 10)).read_text(encoding="utf-8")
            url = yaml.safe_load(kubeconfig)["clusters"][0]["cluster"]["server"]
            return least(partial(_part, "pods", url, count), runs)

    return measure_all(smallest, 1, watch, fixed=True)


def rules_in_force(smallest: int, runs: int) -> Growth:
    """Rules that are read, compiled and discovered at the start, each with a series list of its own."""
    metrics = [f"component_{number}_requests_total" for number in range(sizes_from(smallest)[-1])]
    with Stage() as stage:
        prometheus = stage.start_prometheus(make_apps(len(metrics), 2, metrics))
        kubeconfig = stage.start_cluster(1, 2)

        def start(count: int) -> Cost:
            return _started(stage, stage.start_adapter(kubeconfig, prometheus.url, rules(metrics[:count])))

        return measure_all(smallest, runs, start, fixed=True)


def series(smallest: int, runs: int) -> Growth:
    """Series of a hundred names; memory is that of the discovery worker."""

    def discover(count: int) -> Cost:
        with Stage() as stage:
            url = stage.start_server("long_list", count, min(count, 100))
            return least(partial(_part, "series", url, count), runs)

    return measure_all(smallest, 1, discover, fixed=True)


def swept(smallest: int, runs: int) -> Growth:
    """Series in one decoded response."""

    def decode(count: int) -> Cost:
        labels = '{{"namespace":"team-{0:04}","pod":"app-{0:05}-7c9f8d6b5"}}'
        element = '{{"metric":' + labels + ',"value":[1790000000.123,"{0}.25"]}}'
        body = ",".join(element.format(number) for number in range(count))
        whole = f'{{"status":"success","data":{{"resultType":"vector","result":[{body}]}}}}'.encode()
        chunks = [whole[start : start + _CHUNK] for start in range(0, len(whole), _CHUNK)]
        gc.collect()
        begun = time.process_time()
        decoder = ResponseDecoder()
        for chunk in chunks:
            decoder.feed(chunk)
            while decoder.step():
                pass
        answer = decoder.finish()
        took = time.process_time() - begun
        assert len(answer.samples) == count
        return Cost(took)

    return measure_all(smallest, runs, decode)


CASES: dict[str, Callable[[int, int], Growth]] = {
    "requests": requests,
    "autoscalers": autoscalers,
    "ticks": ticks,
    "pods": pods,
    "rules": rules_in_force,
    "series": series,
    "swept": swept,
}


def _part(name: str, url: str, count: int) -> Cost:
    """Return the cost of a part of the adapter, in a process of its own on the server's core."""
    found = common.run_part("growth_parts", name, url)
    if not count <= found["count"] < count + 10:
        sys.exit(f"{found['count']} {name} were found instead of {count}")
    return Cost(found["cpu_seconds"], found["memory_mib"])


def _serve(stage: Stage, apps: Sequence[App], pods_per_app: int) -> Adapter:
    prometheus = stage.start_prometheus(apps)
    return stage.start_adapter(stage.start_cluster(len(apps), pods_per_app), prometheus.url, rules([_METRIC]))


def _started(stage: Stage, adapter: Adapter) -> Cost:
    """Return the cost of a start up to the first discovery."""
    name = "fastpath_discovery_last_success_timestamp_seconds"
    asyncio.run(load.wait_for(lambda: stage.metric(adapter.port, name), "the series"))
    return Cost(processor_seconds(adapter.pid), adapter.memory())


def _cost_of(stage: Stage, adapter: Adapter, paths: Sequence[str], count: int) -> Cost:
    before = processor_seconds(adapter.pid)
    uvloop.run(_ask(stage, adapter, paths, count))
    return Cost(processor_seconds(adapter.pid) - before)


async def _ask(stage: Stage, adapter: Adapter, paths: Sequence[str], count: int) -> None:
    """Send a number of requests, the paths in turn."""
    asked = [load.render(path) for path in paths]
    numbers = iter(range(count))

    async def caller() -> None:
        connection = await Connection.open(adapter.port, stage.tls)
        for number in numbers:
            reply = await connection.get(asked[number % len(asked)])
            if reply.status != 200:
                sys.exit(f"HTTP status {reply.status}: {reply.body.decode()}")
        connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(_CONNECTIONS):
            group.create_task(caller())


def main() -> None:
    sizes = common.parse_sizes("How cost grows with size.", None, runs=2, **_SMALLEST)
    common.stay_on_load_core()
    report = Report("growth", vars(sizes), {})
    goals = {}
    for name, measure in CASES.items():
        growth = measure(getattr(sizes, name), sizes.runs)
        for cost in ("cpu_seconds", "memory_mib"):
            points = growth.points(cost)
            if not points:
                continue
            figure = f"{name}_{cost.partition('_')[0]}_exponent"
            report.add(**{f"{name}_{size}_{cost}": getattr(growth.costs[size], cost) for size, _ in points})
            fixed = getattr(growth.fixed, cost) or 0.0
            report.add(**{f"{name}_fixed_{cost}": fixed, figure: exponent(points)})
            about = f"growth exponent of {_WHAT[cost]} over {ABOUT[name]} (1 is linear)"
            goals[figure] = Goal(about, _LIMITS.get(figure, LIMIT), "")
    report.goals = goals
    report.show()


if __name__ == "__main__":
    main()
