"""The time from a step of the load to capacity that is ready, in seconds: `python -m benchmarks.ready`.

Three chains scale equal workloads at the same time:

- `native`: an HPA that is synced every 15 s, over a Prometheus that scrapes every 15 s;
- `boosted`: the same HPA with boost, whose pods the scaler scrapes each second;
- `fast`: a FastPathAutoscaler, whose pods the scaler scrapes each second.

The pods of a workload share its load. Their start-up times are drawn around a median that is short, medium
or long. Workloads of the same number step at the same moment, drawn at random, and their pods get the same
start-up times, so the chains differ in nothing but their own delay. The time ends when 90 % of the needed
pods are Ready and counted: what reads the metric for the autoscaler has scraped them since they were Ready.
For each chain and start-up:

- `p50`, `p95`, `max`: that time. `asked_p50` and `ready_p50` are the times until the Scale asks for so many
  pods, and until they are Ready;
- `short`: the pods missing from the 90 %, times seconds, as a mean of the workloads. `saved` is the share
  of the native chain's that the others do not have;
- `overshoot`: the highest count that was asked for over the needed one, of the worst workload.
  `above_needed` counts the workloads for which Fastpath asked for more than is needed,
  `boosted_above_by_hpa` and `native_above_needed` those for which their HPA did.

From zero (`zero_...`): a queue gets its first work, and its Deployment its first pod, with the short
start-up. `asked` is the time to the written Scale, `ready` to the Ready pod. `native` and `fast` read the
queue from Prometheus. For `scraped` the scaler scrapes the exporter of the queues each second. The HPA is
that of a cluster with the feature gate HPAScaleToZero. Boost never leaves zero.

The cluster is the sandbox's, with a stand-in for the HPA controller. Prometheus, `fastpath scale` and
`fastpath serve` are the real programs.
"""

import asyncio
import contextlib
import random
import statistics
import sys
from collections.abc import Sequence

from adapter.autoscaler.decide.observation import Settings
from benchmarks import capacity, common, reaction, ready_world, stepping
from benchmarks.capacity import WorkloadTimes
from benchmarks.common import Goal, Report
from benchmarks.ready_pods import Pods
from benchmarks.ready_world import CHAINS, HPA_CHAINS, NAMESPACE, STARTS, ZERO_CHAINS, Workload
from benchmarks.stage import Stage
from benchmarks.stepping import CLOCK
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.demo.metric_source import Job
from fastpath_sandbox.prometheus.series import Exporter
from tests.world import scalewrites
from tests.world.scalewrites import Audit

SEED = 20_261_123
_SPARE_SECONDS = 60.0


def main() -> None:
    sizes = common.parse_sizes(
        __doc__, workloads=20, zero=30, short=2.0, medium=20.0, long=60.0, slow=15.0, seconds=30.0
    )
    stepping.prepare()
    zero = "time from the first work in a queue to the Scale that leaves zero, exporter scraped every second"
    goals = {
        "zero_scraped_asked_p50_seconds": Goal(f"{zero}: p50", 1.5, "s"),
        "zero_scraped_asked_max_seconds": Goal(f"{zero}: longest", 2.5, "s"),
        "above_needed": Goal("workloads for which Fastpath asks for more pods than a load step needs", 0, ""),
        "boosted_reversals": Goal("raises that the HPA controller reverts while pods start", 0, ""),
    }
    report = Report("ready", {"seed": SEED, **vars(sizes)}, goals)
    medians = {"short": sizes.short, "medium": sizes.medium, "long": sizes.long}
    workloads = ready_world.cast(int(sizes.workloads), int(sizes.zero), medians, SEED)
    with Stage() as stage:
        audit, end = asyncio.run(_run(stage, workloads, sizes.slow, sizes.seconds))
        report.add(**_figures(workloads, end), **_disputes(workloads, audit))
        report.notes.update(_curves(workloads, end))
    report.show()


async def _run(
    stage: Stage, workloads: Sequence[Workload], slow: float, seconds: float
) -> tuple[Audit, float]:
    """Step the load of all workloads; return what was written, and when all had the pods that they need."""
    async with contextlib.AsyncExitStack() as stack:
        cluster = stepping.make_cluster()
        await stack.enter_async_context(cluster)
        stepping.create_kind(cluster)
        pods = Pods(cluster, workloads, CLOCK.wall, stage.directory / "pods.json")
        await stack.enter_async_context(pods)
        exporter = Exporter(ready_world.queues(workloads), CLOCK.wall, host=ready_world.QUEUES_ADDRESS)
        await stack.enter_async_context(exporter)
        for document in ready_world.queue_service(int(exporter.address.rpartition(":")[2])):
            cluster.create(document)
        jobs = [Job("pods", pods.discovered, slow), Job("queues", [exporter.address], slow)]
        for workload in workloads:
            cluster.create(ready_world.autoscaler(workload))
        # to the native controller the boosted show no more than its own do: samples of Prometheus
        scraped = (("fast",), ("boosted", "fast", "zero_scraped"))
        rules = [ready_world.rules(pods.port, cases) for cases in scraped]
        spread = random.Random(SEED)
        settings = Settings(scale_to_zero=True)
        await stack.enter_async_context(
            stepping.chains(
                stage, cluster, jobs, rules, "5s", period=slow, settings=settings, random=spread.random
            )
        )
        await stepping.until_active(cluster, NAMESPACE, [each.name for each in workloads], 2 * slow)
        await _until_lowest(cluster, workloads, 4 * slow + _SPARE_SECONDS)
        audit = Audit(CLOCK.wall, slow)
        scalewrites.follow(cluster, audit)
        begin = CLOCK.wall() + 0.5
        _plan_steps(workloads, begin, seconds, spread)
        longest = max(startup.ready for each in workloads for startup in each.startups)
        # until every workload has enough pods that are Ready and counted
        await stepping.until(
            lambda: all(_end_of(each) is not None for each in workloads),
            seconds + 4 * slow + longest + _SPARE_SECONDS,
        )
        end = CLOCK.wall()
        await asyncio.sleep(2 * slow)  # a count that is too high may follow the last pods
        return audit, end


async def _until_lowest(cluster: Cluster, workloads: Sequence[Workload], seconds: float) -> None:
    """Wait until the workloads of queues are at zero."""

    def wrong() -> list[str]:
        counts = {each["metadata"]["name"]: each["spec"]["replicas"] for each in cluster.list("Deployment")}
        return [each.name for each in workloads if counts[each.name] != each.lowest]

    if not await stepping.until(lambda: not wrong(), seconds):
        sys.exit(f"these workloads have a wrong count of pods before the step: {', '.join(wrong())}")


def _plan_steps(workloads: Sequence[Workload], begin: float, seconds: float, spread: random.Random) -> None:
    """Give the workloads of one number, which differ in their chain, the same random moment."""
    moments: dict[tuple[bool, str, str], float] = {}
    for each in workloads:
        key = each.is_at_zero, each.start, each.name.rpartition("-")[2]
        each.step = moments.setdefault(key, begin + seconds * spread.random())


def _end_of(workload: Workload) -> float | None:
    """Return the seconds to ready capacity; the metric of a queue has no pods to be counted."""
    times = workload.times()
    return times.seconds_ready() if workload.is_at_zero else times.seconds_counted()


def _figures(workloads: Sequence[Workload], end: float) -> dict[str, float]:
    """Return the figures of all chains. A workload that never had its pods has no time, and is counted."""
    figures: dict[str, float] = {}
    for start in STARTS:
        by_chain = {
            chain: [each.times() for each in workloads if (each.chain, each.start) == (chain, start)]
            for chain in CHAINS
        }
        short = {chain: _mean_shortage(mine, end) for chain, mine in by_chain.items()}
        for chain, mine in by_chain.items():
            name = f"{chain}_{start}"
            figures |= _seconds_of(name, mine)
            figures[f"{name}_short_pod_seconds"] = short[chain]
            if chain != "native":
                figures[f"{name}_saved_share"] = 1 - short[chain] / short["native"]
            figures[f"{name}_overshoot"] = max(each.overshoot() for each in mine)
    for chain in ZERO_CHAINS:
        mine = [each.times() for each in workloads if each.chain == chain]
        asked = _seconds(chain, [each.seconds_asked() for each in mine])
        ready = _seconds(chain, [each.seconds_ready() for each in mine])
        figures |= {
            f"{chain}_asked_p50_seconds": statistics.median(asked),
            f"{chain}_asked_max_seconds": max(asked),
            f"{chain}_ready_p50_seconds": statistics.median(ready),
            f"{chain}_ready_max_seconds": max(ready),
        }
    return figures | {"unready": sum(_end_of(each) is None for each in workloads)}


def _curves(workloads: Sequence[Workload], end: float) -> dict[str, str]:
    """Return the Ready pods over time of each chain and start-up, for the picture of `benchmarks.plot`."""
    curves: dict[str, list[reaction.Curve]] = {}
    for each in workloads:
        if not each.is_at_zero:
            found = curves.setdefault(f"ready_{each.chain}_{each.start}", [])
            found.append(
                [
                    (round(seconds, 1), count)
                    for seconds, count in each.times().ready_counts(end)
                    if seconds > 0
                ]
            )
    return {name: reaction.write_curves(found) for name, found in curves.items()}


def _seconds_of(name: str, times: Sequence[WorkloadTimes]) -> dict[str, float]:
    counted = _seconds(name, [each.seconds_counted() for each in times])
    return {
        f"{name}_p50_seconds": statistics.median(counted),
        f"{name}_p95_seconds": capacity.p95(counted),
        f"{name}_max_seconds": max(counted),
        f"{name}_asked_p50_seconds": statistics.median(
            _seconds(name, [each.seconds_asked() for each in times])
        ),
        f"{name}_ready_p50_seconds": statistics.median(
            _seconds(name, [each.seconds_ready() for each in times])
        ),
    }


def _mean_shortage(times: Sequence[WorkloadTimes], end: float) -> float:
    return statistics.fmean(each.shortage(end) for each in times)


def _seconds(name: str, times: Sequence[float | None]) -> list[float]:
    found = [each for each in times if each is not None]
    if not found:
        sys.exit(f"no workload of {name} had the pods that it needs")
    return found


def _disputes(workloads: Sequence[Workload], audit: Audit) -> dict[str, float]:
    """Return how many workloads got too many pods, and by which writer, and how many raises were undone."""
    above: dict[str, float] = dict.fromkeys(
        ("above_needed", "boosted_above_by_hpa", "native_above_needed"), 0
    )
    for each in workloads:
        writes = audit.of(each.name, since=each.step)
        over = {write.by for write in writes if write.after > each.needed}
        above["above_needed"] += scalewrites.BOOSTER in over
        if each.chain in HPA_CHAINS:
            name = "boosted_above_by_hpa" if each.chain == "boosted" else "native_above_needed"
            above[name] += scalewrites.NATIVE in over
    boosted = (each for each in workloads if each.chain == "boosted")
    return above | {"boosted_reversals": reaction.count_reversals(audit, boosted)}


if __name__ == "__main__":
    main()
