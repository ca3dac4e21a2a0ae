"""The time from a step of the CPU load to the written Scale, in seconds: `python -m benchmarks.cpu`.

The control plane is a real one, with its HPA controller: KUBEBUILDER_ASSETS names the folder with etcd,
kube-apiserver and kube-controller-manager. Pods are real processes at loopback addresses. Each exposes its
`process_cpu_seconds_total`, and `fastpath scale` scrapes it every second. A stand-in for the kubelets and
metrics-server measures the processes and serves metrics.k8s.io: it samples a process every 15 s, and collects
the samples every 15 s. So the usage that the HPA controller reads, every 15 s, is up to 30 s old.

All workloads have the same requests and the same load. It steps once, at a random moment, to a multiple, and
falls again after `hold` seconds: the machine carries only some of them at a time. New pods start, and share
the load.

- `plain`: an HPA on CPU utilization;
- `boosted`: the same HPA with boost, which the controller reads with a floor from `fastpath serve`;
- `fast`: a FastPathAutoscaler on CPU utilization.

`p50` and `max` are the times to the first write upwards, `all_...` those to the first one that asks for all
that the load needs. `calm_raises` are writes upwards before the step. `lowered` are writes downwards: the run
ends before the five minutes of stabilization, so there should be none. `boosted_reversals` are those of the
HPA controller. `uncompared` are the workloads whose own usage did not count when the steps began; a note says
why.
"""

import asyncio
import contextlib
import json
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from adapter.model.autoscaling.status import FAST_USAGE
from benchmarks import common, plane, reaction
from benchmarks.common import Goal, Report
from benchmarks.stage import Stage
from benchmarks.stepping import CLOCK
from tests.e2e import nodes
from tests.e2e.nodes import KINDS, TARGET, Nodes
from tests.world import watching
from tests.world.aggregation import NAMESPACE
from tests.world.scalewrites import Audit

SEED = 20_261_127
_CALM = 0.8
"""The usage of a pod before the step, over the target: too low to keep the raise."""


@dataclass(slots=True, eq=False)
class Workload:
    """A Deployment of one pod whose load is high from `step` to `end` (epoch seconds)."""

    kind: str
    name: str
    step: float = math.inf
    end: float = math.inf


def main() -> None:
    sizes = common.parse_sizes(
        __doc__, workloads=10, millicores=24.0, times=3.0, period=15.0, compare=180, seconds=240.0, hold=60.0
    )
    assets = plane.find_assets()
    about = f"time from a step of the CPU load to the written Scale, {sizes.workloads} workloads"
    goals = {
        f"{kind}_{figure}_seconds": Goal(f"{about}, {what}: {word}", limit, "s")
        for kind, what in (("boosted", "boosted HorizontalPodAutoscalers"), ("fast", "FastPathAutoscalers"))
        for figure, word, limit in (("p50", "p50", 1.5), ("max", "longest", 3.0))
    }
    goals["boosted_reversals"] = Goal("raises that the HPA controller reverts", 0, "")
    report = Report("cpu", {"seed": SEED, **vars(sizes)}, goals)
    with Stage() as stage:
        figures, notes = asyncio.run(_run(stage, assets, sizes))
    report.add(**figures)
    report.notes.update(notes)
    report.show()


async def _run(stage: Stage, assets: Path, sizes: Any) -> tuple[dict[str, float], dict[str, str]]:
    workloads = [Workload(kind, f"{kind}-{number}") for number in range(sizes.workloads) for kind in KINDS]
    calm = sizes.millicores / 1000
    async with contextlib.AsyncExitStack() as stack:
        opened = await stack.enter_async_context(plane.opened(stage, assets, sizes.period))
        cluster, authority = opened.cluster, opened.backend.authority
        session = await stack.enter_async_context(watching.connect(cluster))
        machines = Nodes(session, cluster.namespace, sizes.period, authority.server_context())
        await stack.enter_async_context(machines.running())
        audit = Audit(CLOCK.wall, math.inf)
        await stack.enter_async_context(watching.auditing(session, cluster.namespace, NAMESPACE, audit))
        await plane.start_fastpath(
            stage,
            opened,
            "http://127.0.0.1:9",  # no rule asks it
            {"resourceRules": {"cpu": {"scrape": {"port": machines.port}}}},
            registered={plane.FLOORS: None, nodes.METRICS: machines.metrics.port},
        )
        for workload in workloads:
            machines.use(workload.name, calm)
        await cluster.create(
            *(
                document
                for workload in workloads
                for document in nodes.workload(
                    workload.kind, workload.name, cluster.namespace, calm / _CALM / (TARGET / 100)
                )
            )
        )
        reasons = await _until_compared(stage, cluster.namespace, workloads, sizes.compare)
        dice, begin = random.Random(SEED), CLOCK.wall() + 1.0
        for workload in workloads:
            workload.step = begin + sizes.seconds * dice.random()
            workload.end = workload.step + sizes.hold
        await _step_all(machines, workloads, calm, sizes.times)
        await asyncio.sleep(2 * sizes.period)  # the controller sees the last one fall
    needed = math.ceil(sizes.times * _CALM)
    figures = _figures(audit, workloads, needed) | {"uncompared": len(reasons)}
    return figures, {f"uncompared_{name}": why for name, why in reasons.items()}


# -- what the scaler says ------------------------------------------------------------------------------------


async def _until_compared(
    stage: Stage, namespace: str, workloads: Sequence[Workload], seconds: float
) -> dict[str, str]:
    """Wait until the own usage of all workloads counts; return by workload why it does not in the end."""
    deadline = CLOCK.wall() + seconds
    while True:
        reasons = await _reasons(stage, namespace, workloads)
        if not reasons or CLOCK.wall() > deadline:
            return reasons
        await asyncio.sleep(1.0)


async def _reasons(stage: Stage, namespace: str, workloads: Sequence[Workload]) -> dict[str, str]:
    """Return by workload why the own usage of its pods does not count, as the scaler's debug page tells."""
    reasons: dict[str, str] = {}
    async with aiohttp.ClientSession(base_url=f"http://127.0.0.1:{stage.local_port}") as session:
        for workload in workloads:
            if workload.kind == "plain":
                continue
            path = f"/debug/fastpath/autoscalers/{namespace}/{workload.name}"
            async with session.get(path) as response:
                shown = json.loads(await response.text())
            conditions = (shown.get("status") or {}).get("conditions") or ()
            found = [each for each in conditions if each["type"] == FAST_USAGE]
            if not found or found[0]["status"] != "True":
                inputs = (shown.get("last") or {}).get("inputs") or ()
                whys = [each["notFaster"] for each in inputs if "notFaster" in each]
                reasons[workload.name] = "; ".join(whys) or str(found or shown)[:300]
    return reasons


# -- the load ------------------------------------------------------------------------------------------------


async def _step_all(machines: Nodes, workloads: Sequence[Workload], calm: float, times: float) -> None:
    """Step the loads at their moments, and note when it really happened."""
    moments = [(each.step, each, times) for each in workloads] + [(each.end, each, 1.0) for each in workloads]
    for moment, workload, factor in sorted(moments, key=lambda each: each[0]):
        await asyncio.sleep(max(0.0, moment - CLOCK.wall()))
        if factor != 1.0:
            workload.step = CLOCK.wall()
        machines.use(workload.name, calm * factor)


# -- the figures ---------------------------------------------------------------------------------------------


def _figures(audit: Audit, workloads: Sequence[Workload], needed: int) -> dict[str, float]:
    """Return the figures of all kinds. A workload that was never scaled has no time, and is counted."""
    figures: dict[str, float] = {}
    for kind in KINDS:
        mine = [each for each in workloads if each.kind == kind]
        for prefix, least in (("", 0), ("all_", needed)):
            times = reaction.all_seconds_to(audit, mine, least)
            figures[f"{kind}_{prefix}unwritten"] = len(mine) - len(times)
            if times:
                figures[f"{kind}_{prefix}p50_seconds"] = statistics.median(times)
                figures[f"{kind}_{prefix}max_seconds"] = max(times)
        writes = [(each, audit.of(each.name)) for each in mine]
        figures[f"{kind}_calm_raises"] = sum(
            write.after > write.before and write.time < each.step for each, found in writes for write in found
        )
        figures[f"{kind}_above_needed"] = reaction.count_above(audit, mine, needed)
        figures[f"{kind}_lowered"] = sum(write.after < write.before for _, found in writes for write in found)
    boosted = [each for each in workloads if each.kind == "boosted"]
    return figures | {
        "boosted_reversals": reaction.count_reversals(audit, boosted),
        "boosted_native_first": reaction.count_native_first(audit, boosted),
    }


if __name__ == "__main__":
    main()
