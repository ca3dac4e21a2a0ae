"""What ends with pods that shrinks remove, with and without idle scale-down: `benchmarks.idle_scale_down`.

The control plane is a real one: its HPA controller scales, and its ReplicaSet controller chooses the pods to
remove. KUBEBUILDER_ASSETS names the folder with etcd, kube-apiserver and kube-controller-manager. The pods
have no containers: each answers the scrapes of `fastpath scale` at an address of its own.

The load of a workload needs 20 pods, then falls at a random moment, and needs 10. At that moment it moves
between the pods: a fifth of them have about five sixths. The same holds for open connections, which say
nothing about the load. Workloads of one number have the same parts.

- `fast`: a FastPathAutoscaler; `fast_idle` prefers idle pods by the metric that it scales on, which is the
  load, and `fast_connections` by the open connections;
- `boosted`: a boosted HPA, which the HPA controller shrinks; `boosted_idle` prefers idle pods.

`load` are the busy cores of the removed pods of a shrink, as a mean, and `connections` their open
connections. `..._saved` compares with the same autoscaler without the option, and `least_...` is what the
idlest pods have. `patches_max` is the highest number of patches of pods in a shrink, refused ones too.
`costs_left` counts the costs of pods that stay. `fall_p50` and `fall_max` are the times from the fall to the
Scale of 10, which waits for the stabilization window. A shrink may take several writes (`writes_max`):
the pods are scraped one after the other. `wrong` counts workloads with a raise, or another last count.
"""

import asyncio
import contextlib
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks import common, plane
from benchmarks.common import Goal, Report
from benchmarks.stage import Stage
from benchmarks.stepping import CLOCK
from fastpath_sandbox.prometheus.server import Prometheus
from tests.e2e import idle, watching
from tests.e2e.aggregation import NAMESPACE
from tests.support.boosting import CONNECTIONS, UNIT, Parts, Workload
from tests.support.scaleraudit import ScalerAudit
from tests.support.waiting import until

SEED = 20_261_127
PODS = 20
LEFT = PODS // 2
_CUSTOM = "v1beta2.custom.metrics.k8s.io"
_SECONDS = 90.0
_WHOLE = {"load": idle.level(LEFT)(0) / UNIT, "connections": idle.level(LEFT)(0) * CONNECTIONS}
"""What a workload has after the fall: a pod that has all that it takes has one busy core."""

_GAINS = {
    "fast_idle_load": "busy cores of removed pods, FastPathAutoscaler",
    "fast_connections_connections": "open connections of removed pods, FastPathAutoscaler",
    "boosted_idle_load": "busy cores of removed pods, boosted HorizontalPodAutoscaler",
}


@dataclass(slots=True, eq=False)
class Shrink:
    """A workload whose load falls at `fall`; `shares` are what its pods have then."""

    kind: str
    workload: Workload
    number: int
    fall: float = math.inf
    shares: dict[str, Parts] = field(default_factory=dict)
    removed: Sequence[Parts] = ()
    costs_left: int = 0

    def begin(self) -> None:
        self.fall = CLOCK.wall()
        idle.fall(self.workload, f"{SEED}-{self.number}")
        self.shares = {pod: self.workload.share(pod) for pod in self.workload.parts}

    def end(self, world: idle.World) -> None:
        self.removed = [share for pod, share in self.shares.items() if pod not in self.workload.parts]
        self.costs_left = len(world.costs(self.workload.name))

    def lost(self, key: str) -> float:
        """Return the share of the removed pods in the load or the connections."""
        return math.fsum(getattr(share, key) for share in self.removed)

    def least(self, key: str) -> float:
        return math.fsum(sorted(getattr(share, key) for share in self.shares.values())[: PODS - LEFT])


def main() -> None:
    sizes = common.parse_sizes(
        "What ends with the pods that a shrink removes.",
        runs=30,
        together=3,
        period=5.0,
        window=10,
        interval=1.0,
    )
    assets = plane.find_assets()
    goals = {
        f"{name}_saved": Goal(f"{what} with idle scale-down: share that it saves", 0.9, "", at_least=True)
        for name, what in _GAINS.items()
    }
    goals |= {
        f"{name}_patches_max": Goal(f"{name}: patches of pods in a shrink by {PODS - LEFT}", PODS - LEFT, "")
        for name in ("fast_idle", "fast_connections", "boosted_idle")
    }
    report = Report("idle_scale_down", {"seed": SEED, **vars(sizes)}, goals)
    with Stage() as stage:
        figures, shrinks = asyncio.run(_run(stage, assets, sizes))
    report.add(**figures)
    report.notes.update(_notes(shrinks))
    report.show()


async def _run(stage: Stage, assets: Path, sizes: Any) -> tuple[dict[str, float], Sequence[Shrink]]:
    dice = random.Random(SEED)
    async with contextlib.AsyncExitStack() as stack:
        opened = await stack.enter_async_context(plane.opened(stage, assets, sizes.period))
        session = await stack.enter_async_context(watching.connect(opened.cluster, opened.backend.authority))
        world = idle.World(opened.cluster, session)
        world.interval = f"{sizes.interval:g}s"
        await stack.enter_async_context(world.listening())
        prometheus = await stack.enter_async_context(Prometheus(world.series, now=CLOCK.wall))
        await stack.enter_async_context(world.watching())
        await plane.start_fastpath(
            stage,
            opened,
            prometheus.url,
            yaml.safe_load(world.rules),
            f"--horizontal-pod-autoscaler-sync-period={sizes.period:g}s",
            "--metrics-relist-interval=2s",
            "--metrics-max-age=60s",
            registered={plane.FLOORS: None, _CUSTOM: None},
        )
        shrinks: list[Shrink] = []
        before = common.read_processor()
        for first in range(0, sizes.runs, sizes.together):
            numbers = range(first, min(first + sizes.together, sizes.runs))
            shrinks += await _shrink_together(world, numbers, sizes, dice)
            await world.clear()
        busy = common.busy_share(before, common.read_processor())
        audit = ScalerAudit(opened.plane.audit_log, NAMESPACE)
        audit.read()
    return _figures(shrinks, world, audit) | {"busy_share": busy}, shrinks


def _notes(shrinks: Sequence[Shrink]) -> dict[str, str]:
    """Return the busy cores of each pod of the first workload of each kind, and whether it was removed."""
    first = {shrink.kind: shrink for shrink in reversed(shrinks)}
    return {
        f"pods_{kind.replace('-', '_')}": json.dumps(
            [
                [round(_WHOLE["load"] * share.load, 3), share in shrink.removed]
                for share in shrink.shares.values()
            ]
        )
        for kind, shrink in first.items()
    }


async def _shrink_together(
    world: idle.World, numbers: Iterable[int], sizes: Any, dice: random.Random
) -> list[Shrink]:
    """Let the loads of workloads of all kinds fall, and return what was removed."""
    shrinks = [
        Shrink(kind, idle.workload(kind, f"{kind}-{number}", PODS, sizes.window), number)
        for number in numbers
        for kind in idle.IDLE
    ]
    await world.add_kinds([(shrink.workload, shrink.kind) for shrink in shrinks])
    names = [shrink.workload.name for shrink in shrinks]
    await until(lambda: all(map(world.is_settled, names)), _SECONDS)
    moments = sorted((2 * sizes.period * dice.random(), place) for place in range(len(shrinks)))
    begin = CLOCK.wall()
    for moment, place in moments:
        await asyncio.sleep(max(0.0, begin + moment - CLOCK.wall()))
        shrinks[place].begin()
    with contextlib.suppress(TimeoutError):
        await until(lambda: all(shrink.workload.ready == LEFT for shrink in shrinks), _SECONDS)
    await asyncio.sleep(2 * sizes.period)  # what is written after the shrink counts too
    for shrink in shrinks:
        shrink.end(world)
    return shrinks


def _figures(shrinks: Sequence[Shrink], world: idle.World, audit: ScalerAudit) -> dict[str, float]:
    figures: dict[str, float] = {}
    patches = Counter(patch.pod.name.rsplit("-", 2)[0] for patch in audit.patches)
    for kind in idle.IDLE:
        mine = [shrink for shrink in shrinks if shrink.kind == kind]
        name, plain = kind.replace("-", "_"), kind.partition("-")[0]
        for key, whole in _WHOLE.items():
            figures[f"{name}_{key}"] = whole * statistics.fmean(shrink.lost(key) for shrink in mine)
            if idle.IDLE[kind]:
                figures[f"{name}_{key}_saved"] = 1 - figures[f"{name}_{key}"] / figures[f"{plain}_{key}"]
        figures[f"{name}_patches_max"] = max(patches[shrink.workload.name] for shrink in mine)
        figures[f"{name}_costs_left"] = sum(shrink.costs_left for shrink in mine)
        counts = [(shrink, world.audit.of(shrink.workload.name)) for shrink in mine]
        seconds = [
            write.time - shrink.fall for shrink, writes in counts for write in writes if write.after == LEFT
        ]
        figures[f"{name}_fall_p50_seconds"] = statistics.median(seconds)
        figures[f"{name}_fall_max_seconds"] = max(seconds)
        figures[f"{name}_writes_max"] = max(len(writes) for _, writes in counts)
        figures[f"{name}_wrong"] = sum(
            writes[-1].after != LEFT or any(write.after > write.before for write in writes)
            for _, writes in counts
        )
    for key, whole in _WHOLE.items():
        figures[f"least_{key}"] = whole * statistics.fmean(shrink.least(key) for shrink in shrinks)
    return figures


if __name__ == "__main__":
    main()
