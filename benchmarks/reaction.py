"""The time from a step of the load to the written Scale, in seconds: `python -m benchmarks.reaction`.

The cluster is the sandbox's, with pods on loopback addresses of their own. Prometheus, `fastpath scale` and
`fastpath serve` are the real programs; a stand-in takes the place of the HorizontalPodAutoscaler controller.
The load of each workload steps once, at a random moment. The time counts from that moment, at the pod, until
the API server has taken the Scale: the first one upwards (`p50`, `mean`, `max`), and the first one that asks
for all that the load needs (`all_...`). The cases run at the same time. Written replicas start no pods, so
the load of each pod stays the same.

- `gauge`, `counter`: the pods are scraped each second, the counter's rate is over 5 s.
- `prometheus_quick`, `prometheus_slow`: gauges that Prometheus scrapes each second and every 15 s.
- `native`: a gauge that Prometheus scrapes every 15 s, for an HPA that is synced every 15 s.
- `boosted`: the same HPA with boost. The scaler scrapes its pods each second, and the controller reads the
  floor from `fastpath serve`.

For `boosted`, `boosted_native_first` counts the workloads that the controller raised first, and
`boosted_reversals` the raises that it undid. Each is watched for two periods after the last step. Its load
before the step is so low that a controller that sees the step late would undo the raise without a floor.
"""

import asyncio
import contextlib
import random
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import common, stepping
from benchmarks.common import Goal, Report
from benchmarks.stage import Stage
from benchmarks.stepping import CASES, CLOCK, NAMESPACE, Workload
from fastpath_sandbox.demo.metric_source import Job
from tests.world import scalewrites
from tests.world.scalewrites import Audit

SEED = 20_261_120

DRAWN = ("native", "boosted", "gauge")
"""The cases whose replicas over time are kept, for the picture that `benchmarks.plot` draws."""

Curve = list[tuple[float, int]]
"""The replicas that were written for one workload, each with the seconds since the load stepped."""


def main() -> None:
    sizes = common.parse_sizes(__doc__, workloads=30, pods=2, slow=15.0, seconds=30.0)
    stepping.prepare()
    step = "time from a load step to the written Scale"
    gauge = f"{step}, {sizes.workloads} workloads, gauge scraped every second"
    goals = {
        "gauge_p50_seconds": Goal(f"{gauge}: p50", 0.7, "s"),
        "gauge_max_seconds": Goal(f"{gauge}: longest", 1.5, "s"),
        "boosted_p50_seconds": Goal(f"{step}, boosted HorizontalPodAutoscalers: p50", 1.0, "s"),
        "boosted_reversals": Goal("raises that the HPA controller reverts during the run", 0, ""),
    }
    report = Report("reaction", {"seed": SEED, **vars(sizes)}, goals)
    with Stage() as stage:
        run = _run(stage, int(sizes.workloads), int(sizes.pods), sizes.slow, sizes.seconds)
        figures, notes = asyncio.run(run)
    report.add(**figures)
    report.notes.update(notes)
    report.show()


async def _run(
    stage: Stage, count: int, pods: int, slow: float, seconds: float
) -> tuple[dict[str, float], dict[str, str]]:
    workloads = stepping.cast(count, CLOCK.wall())
    async with contextlib.AsyncExitStack() as stack:
        cluster = stepping.make_cluster()
        await stack.enter_async_context(cluster)
        stepping.create_kind(cluster)
        port, addresses = await stack.enter_async_context(
            stepping.listening(cluster, workloads, pods, CLOCK.wall)
        )
        quick = [address for case, address in addresses if case == "prometheus_quick"]
        others = [address for case, address in addresses if case != "prometheus_quick"]
        jobs = [Job("quick", quick, stepping.INTERVAL), Job("slow", others, slow)]
        for workload in workloads:
            cluster.create(stepping.autoscaler(workload, pods))
        # to the native controller the boosted show no more than its own do: samples of Prometheus
        scraped = ("gauge", "counter")
        rules = [stepping.rules(port, scraped), stepping.rules(port, (*scraped, "boosted"))]
        spread = random.Random(SEED)
        await stack.enter_async_context(
            stepping.chains(stage, cluster, jobs, rules, "2s", period=slow, random=spread.random)
        )
        await stepping.until_active(cluster, NAMESPACE, [each.name for each in workloads], 2 * slow)
        await asyncio.sleep(stepping.WINDOW)  # so that every rate is over a whole window
        audit = Audit(CLOCK.wall, slow)
        scalewrites.follow(cluster, audit)
        begin = CLOCK.wall() + 0.5
        for workload in workloads:
            workload.step = begin + seconds * spread.random()
        needed = stepping.needed(pods)
        await stepping.until(
            lambda: all(seconds_to(audit, each, needed) is not None for each in workloads),
            seconds + 4 * slow + stepping.WINDOW + 5,
        )
        # what was raised last is looked at by the native controller once more
        await asyncio.sleep(max(0.0, begin + seconds + 2 * slow - CLOCK.wall()))
    (log,) = stage.directory.glob("scaler-*.log")
    boosted = [each for each in workloads if each.case == "boosted"]
    figures = _figures(audit, workloads, pods, log) | {
        "boosted_native_first": count_native_first(audit, boosted),
        "boosted_reversals": count_reversals(audit, boosted),
    }
    curves = {case: [_curve(audit, each) for each in workloads if each.case == case] for case in DRAWN}
    return figures, {f"replicas_{case}": write_curves(found) for case, found in curves.items()}


def seconds_to(audit: Audit, workload: Any, least: int = 0) -> float | None:
    """Return the seconds from a step to the first raise that asks for at least so many replicas."""
    writes = audit.of(workload.name, since=workload.step)
    raises = (each for each in writes if each.after > each.before and each.after >= least)
    first = next(raises, None)
    return None if first is None else first.time - workload.step


def _figures(audit: Audit, workloads: Sequence[Workload], pods: int, log: Path) -> dict[str, float]:
    """Return the figures of all cases. A workload that was never scaled has no time, and is counted."""
    figures: dict[str, float] = {}
    unwritten, needed = 0, stepping.needed(pods)
    for case in CASES:
        mine = [each for each in workloads if each.case == case]
        for prefix, least in (("", 0), ("all_", needed)):
            times = all_seconds_to(audit, mine, least)
            unwritten += len(mine) - len(times)
            if not times:
                sys.exit(f"no workload of the case {case} was scaled; the scaler says:\n{log.read_text()}")
            figures[f"{case}_{prefix}p50_seconds"] = statistics.median(times)
            figures[f"{case}_{prefix}mean_seconds"] = statistics.fmean(times)
            figures[f"{case}_{prefix}max_seconds"] = max(times)
        figures[f"{case}_above_needed"] = count_above(audit, mine, needed)
    figures["unwritten"] = unwritten
    return figures


def all_seconds_to(audit: Audit, workloads: Iterable[Any], least: int) -> list[float]:
    """Return `seconds_to` of the workloads that were raised."""
    found = (seconds_to(audit, each, least) for each in workloads)
    return [each for each in found if each is not None]


def count_above(audit: Audit, workloads: Iterable[Any], needed: int) -> int:
    return sum(any(write.after > needed for write in audit.of(each.name)) for each in workloads)


def count_reversals(audit: Audit, workloads: Iterable[Any]) -> int:
    """Return how often the native controller undid a raise of a boosted workload."""
    writes = (write for each in workloads for write in audit.of(each.name, scalewrites.NATIVE, each.step))
    return sum(write.after < write.before for write in writes)


def count_native_first(audit: Audit, workloads: Iterable[Any]) -> int:
    """Return how many boosted workloads the native controller raised first."""
    raises = ([write for write in audit.of(each.name) if write.after > write.before] for each in workloads)
    return sum(bool(found) and found[0].by != scalewrites.BOOSTER for found in raises)


def _curve(audit: Audit, workload: Workload) -> Curve:
    """Return what was written for a workload after its load stepped."""
    writes = audit.of(workload.name)
    return [
        (round(each.time - workload.step, 3), each.after) for each in writes if each.time >= workload.step
    ]


def write_curves(curves: Sequence[Curve]) -> str:
    """Return curves as one line of text: `7.309:3 22.32:4; 14.318:4`."""
    return "; ".join(" ".join(f"{seconds:g}:{replicas}" for seconds, replicas in curve) for curve in curves)


def read_curves(text: str) -> list[Curve]:
    """Return the curves that `write_curves` wrote."""
    points = ([point.partition(":") for point in curve.split()] for curve in text.split(";"))
    return [[(float(seconds), int(replicas)) for seconds, _, replicas in curve] for curve in points]


if __name__ == "__main__":
    main()
