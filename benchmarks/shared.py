"""Queries of one, two and four scalers that share the same autoscalers: `benchmarks.shared`.

The control plane is a real one, as in `benchmarks.scalers`, and so are Prometheus and all scalers. Each
autoscaler has an Object metric of one rule, sampled every `interval` seconds at a moment of its own. For each
number of scalers in turn, some come or go until they own fair shares. When they know the interval of the
samples, Prometheus counts its queries and processor time for `seconds`.

`..._by_one` is what several scalers ask, by what one alone does, the median over the rounds.
`unmerged_queries` are merged queries that failed, so that their requests were sent separately.
"""

import asyncio
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from adapter.compose.clock import SystemClock
from benchmarks import common, plane
from benchmarks.common import Goal, Report
from benchmarks.scalers import SEED
from benchmarks.stage import Stage, cpu_seconds_of, queries_of
from tests.e2e import fleet
from tests.e2e.fleet import Fleet, Sizes
from tests.e2e.test_scaler import Scene
from tests.support.prometheus import PrometheusServer

_COUNTS = (1, 2, 4)
_CLOCK = SystemClock()
_SETTLED_INTERVALS = 2.5
"""Two samples, after which a poll knows its interval, and half of one more."""


def main() -> None:
    sizes = common.parse_sizes(__doc__, autoscalers=300, namespaces=60, interval=15.0, seconds=30.0, rounds=3)
    assets = plane.find_assets()
    about = f"{sizes.autoscalers} autoscalers of one rule, samples every {sizes.interval:g} s"
    goals = {
        f"queries_{count}_by_one": Goal(f"{about}: queries of {count} scalers, by those of one", 1.1, "")
        for count in _COUNTS[1:]
    }
    report = Report("shared", {"seed": SEED, **vars(sizes)}, goals)
    with Stage() as stage:
        report.add(**asyncio.run(_run(stage, assets, sizes)))
    report.show()


async def _run(stage: Stage, assets: Path, sizes: Any) -> dict[str, float]:
    runs: defaultdict[str, list[float]] = defaultdict(list)
    shape = Sizes(sizes.autoscalers, sizes.namespaces, interval=sizes.interval)
    async with plane.opened(stage, assets) as control:
        prometheus = await asyncio.to_thread(stage.start_prometheus)
        scene = Scene(control.cluster, control.backend, prometheus, stage.directory)
        async with fleet.opened(scene, control.plane, shape, SEED) as scalers:
            for _ in range(int(sizes.rounds)):
                for count in _COUNTS:
                    await _become(scalers, count)
                    await asyncio.sleep(sizes.interval * _SETTLED_INTERVALS)
                    for name, value in (await _measure(prometheus, sizes.seconds)).items():
                        runs[f"{name}_{count}"].append(value)
        logs = "".join(log.read_text(encoding="utf-8") for log in stage.directory.glob("scaler-*.log"))
    return _figures(runs) | {"unmerged_queries": logs.count("merged query failed")}


async def _become(scalers: Fleet, count: int) -> None:
    """Have so many scalers run, in fair shares."""
    while len(scalers.pods) > count:
        await scalers.end(next(iter(scalers.pods)))
    while len(scalers.pods) < count:
        await scalers.start()
    await scalers.settled()
    scalers.demands.is_stepping = False


async def _measure(prometheus: PrometheusServer, seconds: float) -> dict[str, float]:
    def read() -> tuple[float, ...]:
        return _CLOCK.monotonic(), queries_of(prometheus), cpu_seconds_of(prometheus)

    before = await asyncio.to_thread(read)
    await asyncio.sleep(seconds)
    after = await asyncio.to_thread(read)
    took, queries, used = (end - begin for begin, end in zip(before, after, strict=True))
    return {"queries_per_second": queries / took, "prometheus_cpu_share": used / took}


def _figures(runs: dict[str, list[float]]) -> dict[str, float]:
    figures = {name: statistics.median(values) for name, values in runs.items()}
    figures |= {f"most_{name}": max(values) for name, values in runs.items() if name.startswith("queries")}
    alone = runs["queries_per_second_1"]
    for count in _COUNTS[1:]:
        scalers = runs[f"queries_per_second_{count}"]
        figures[f"queries_{count}_by_one"] = statistics.median(
            value / one for value, one in zip(scalers, alone, strict=True)
        )
    return figures


if __name__ == "__main__":
    main()
