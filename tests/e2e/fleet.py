"""Several scalers on a real control plane under stepping load: they come, crash, freeze, and are replaced.

`turns` lets all of that happen, one after the other. `ScalerAudit` judges what was written meanwhile, from
the audit log of the API server. The Deployments are paused, so they have no pods: their number of replicas is
all that counts here.
"""

import asyncio
import contextlib
import itertools
import math
import random
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

from adapter.kubernetes.credentials import pod_of
from adapter.model.autoscaling import slices
from fastpath_sandbox.prometheus.series import Series
from tests.e2e.scaleraudit import GROUP, IN_FLIGHT, ScalerAudit, Step
from tests.support.objects import plain
from tests.support.waiting import running, until
from tests.world import watching
from tests.world.clusters import Config, Document
from tests.world.controlplane import ControlPlane
from tests.world.processes import THIS, Fastpath, Version
from tests.world.scalewrites import Place
from tests.world.workloads import CLOCK, HOME, Workload, level
from tests.world.world import QUEUE, World

INITIAL = 1
"""The replicas of all targets at the beginning."""

TARGET = 10
_ACCOUNT = f"system:serviceaccount:{HOME}:fastpath-scaler"
_SETTLE_SECONDS = 120.0
RULES = """
rules:
- seriesQuery: 'demand{namespace!="",deployment!=""}'
  resources:
    overrides: {namespace: {resource: namespace}, deployment: {group: apps, resource: deployment}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a fleet is; times in seconds.

    `step` is the time between two steps of one load, `window` that of stabilization, and `quiet` that after
    each turn.
    """

    autoscalers: int
    namespaces: int
    lease: float
    renew: float
    retry: float
    step: float
    window: float
    freeze: float
    quiet: float

    @property
    def flags(self) -> Sequence[str]:
        return (
            f"--leader-elect-lease-duration={self.lease:g}s",
            f"--leader-elect-renew-deadline={self.renew:g}s",
            f"--leader-elect-retry-period={self.retry:g}s",
            "--metrics-relist-interval=1m",
            "--journal-entries=1000",
        )


class Demands:
    """What each autoscaler needs, as Prometheus shows it twice a second."""

    def __init__(self, targets: Sequence[Place], step: float, seed: int) -> None:
        dice = random.Random(seed)
        self.steps: dict[Place, list[Step]] = {target: [Step(0.0, INITIAL)] for target in targets}
        self._plans = {target: _plan(random.Random(dice.random()), step) for target in targets}
        self._due = dict.fromkeys(targets, 0.0)
        self.is_stepping = True

    def series(self, target: Place) -> Series:
        labels = {"namespace": target.namespace, "deployment": target.name}
        return Series("demand", labels, lambda _: float(self.steps[target][-1].replicas * TARGET))

    async def keep(self) -> None:
        """Step the loads until cancelled."""
        while True:
            now = CLOCK.wall()
            for target, plan in self._plans.items():
                if self.is_stepping and self._due[target] <= now:
                    count, seconds = next(plan)
                    self.steps[target].append(Step(now, count))
                    self._due[target] = now + seconds
            await asyncio.sleep(0.5)


def _plan(dice: random.Random, step: float) -> Iterator[tuple[int, float]]:
    """Yield counts, each with its seconds: four raises, and a fall in two steps, from any of these on."""
    yield INITIAL, step * dice.random()
    skipped = dice.randrange(6)
    while True:
        counts = [dice.randint(1, 2)]
        while len(counts) < 5:
            counts.append(math.ceil(counts[-1] * dice.uniform(1.4, 1.9)))
        counts.append(counts[-1] // 2)
        for number, count in list(enumerate(counts))[skipped:]:
            yield count, step * dice.uniform(0.8, 1.2) * (1 if number else 3)
        skipped = 0


@dataclass(slots=True, eq=False)
class Fleet:
    world: World
    plane: ControlPlane
    sizes: Sizes
    demands: Demands
    audit: ScalerAudit
    pods: dict[str, Fastpath] = field(default_factory=dict)
    frozen: dict[str, float] = field(default_factory=dict)
    """When each pod was frozen last."""
    journals: dict[tuple[str, Place], tuple[float, list[tuple[int, int]]]] = field(default_factory=dict)
    """What was written as each pod told it last, and before when that is complete."""
    started: int = 0
    rules: str = RULES
    versions: Iterator[Version] = field(default_factory=lambda: itertools.repeat(THIS))
    """That of each pod that starts."""

    # -- pods ------------------------------------------------------------------------------------------------

    async def start(self) -> str:
        """Start a scaler, and return its pod when it is ready."""
        pod = f"scaler-{self.started}"
        self.started += 1
        kubeconfig = self.world.directory / f"{pod}-user.kubeconfig"
        await asyncio.to_thread(self.plane.kubeconfig, kubeconfig, _ACCOUNT, GROUP + pod)
        self.pods[pod] = await self.world.scaler(
            *self.sizes.flags,
            pod=pod,
            rules=self.rules,
            account=Config(kubeconfig),
            version=next(self.versions),
            uid=pod,
        )
        return pod

    async def end(self, pod: str, by: signal.Signals = signal.SIGTERM) -> None:
        await self.pods.pop(pod).end(by)

    def send(self, pod: str, sent: signal.Signals) -> None:
        process = self.pods[pod].process
        assert process is not None
        process.send_signal(sent)

    async def settled(self, *frozen: str) -> None:
        """Return when the pods that run own all slices, in fair shares, and some quiet time has passed."""

        def is_fair() -> bool:
            self.audit.read()
            shares = self.audit.shares()
            return (
                shares.keys() == self.pods.keys() - set(frozen)
                and shares.total() == slices.COUNT
                and max(shares.values()) - min(shares.values()) <= 1
            )

        await until(is_fair, _SETTLE_SECONDS)
        await asyncio.sleep(self.sizes.quiet)
        for pod in self.pods.keys() - set(frozen):
            for target in self.demands.steps:
                if pod_of(self.audit.owner(target.namespace)) == pod:
                    await self._read_journal(pod, target)

    async def _read_journal(self, pod: str, target: Place) -> None:
        begun = CLOCK.wall()
        path = f"/debug/fastpath/autoscalers/{target.namespace}/{target.name}"
        status, shown = await self.pods[pod].get(path)
        if status == 200:
            written = [
                (entry["currentReplicas"], entry["desiredReplicas"])
                for entry in shown["journal"]
                if entry["outcome"] == "written"
            ]
            self.journals[pod, target] = begun - IN_FLIGHT, written

    # -- verdicts --------------------------------------------------------------------------------------------

    def doubles(self) -> list[str]:
        return [fault for target in self.demands.steps for fault in self.audit.doubles(target, INITIAL)]

    def unjournalled(self) -> list[str]:
        return [
            fault
            for (pod, target), (since, journal) in self.journals.items()
            for fault in self.audit.unjournalled(
                target, pod, journal, since, INITIAL, self.frozen.get(pod, math.inf)
            )
        ]

    def wrong(self) -> list[str]:
        window = self.sizes.window
        return [
            fault
            for target, steps in self.demands.steps.items()
            for fault in self.audit.wrong(target, steps, INITIAL, window)
        ]

    def counts(self) -> dict[Place, int]:
        """Return what every target is told to have."""
        self.audit.read()
        return {target: self.audit.count(target, INITIAL) for target in self.demands.steps}

    async def follow(self) -> None:
        """Return when every target has the replicas that it needs; the loads step no more."""
        self.demands.is_stepping = False

        def remaining() -> list[Place]:
            steps = self.demands.steps
            return [target for target, count in self.counts().items() if count != steps[target][-1].replicas]

        await until(lambda: not remaining(), 30 + 2 * self.sizes.window)


@contextlib.asynccontextmanager
async def opened(world: World, plane: ControlPlane, sizes: Sizes, seed: int) -> AsyncIterator[Fleet]:
    """Make the autoscalers and their load; yield a fleet without pods."""
    spaces = [f"tenant-{number:02}" for number in range(sizes.namespaces)]
    targets = [Place(spaces[number % len(spaces)], f"web-{number:03}") for number in range(sizes.autoscalers)]
    demands = Demands(targets, sizes.step, seed)
    for target in targets:
        world.series.add(demands.series(target))
    fleet = Fleet(world, plane, sizes, demands, ScalerAudit(plane.audit_log, HOME))
    await world.admit_scaler()
    await world.cluster.create(*(plain("Namespace", name) for name in spaces))
    try:
        async with watching.connect(world.cluster) as session:
            deployments = watching.follow(
                session, "/apis/apps/v1/deployments", lambda _, found: fleet.audit.saw_target(found)
            )
            async with running(demands.keep()), running(deployments):
                await world.cluster.create(
                    *(each for target in targets for each in _workload(target, sizes.window))
                )
                yield fleet
    finally:
        await world.cluster.kubectl("delete", "namespace", *spaces, "--wait=false", "--ignore-not-found")


async def turns(fleet: Fleet) -> None:
    """One scaler becomes three, one crashes and one freezes; all are replaced, and two remain."""
    await fleet.start()
    await fleet.settled()
    await asyncio.gather(fleet.start(), fleet.start())
    await fleet.settled()
    await fleet.end([*fleet.pods][-1], signal.SIGKILL)
    await fleet.start()
    await fleet.settled()
    victim = [*fleet.pods][1]
    fleet.frozen[victim] = CLOCK.wall()
    fleet.send(victim, signal.SIGSTOP)
    await asyncio.sleep(fleet.sizes.freeze)
    await fleet.settled(victim)
    fleet.send(victim, signal.SIGCONT)
    await fleet.settled()
    for pod in [*fleet.pods]:
        await fleet.start()
        await fleet.end(pod)
        await fleet.settled()
    await fleet.end(next(iter(fleet.pods)))
    await fleet.settled()
    await fleet.follow()


def _workload(target: Place, window: float) -> list[Document]:
    metadata = {"name": target.name, "namespace": target.namespace}
    paused = Workload(target.name, QUEUE, level(INITIAL), replicas=INITIAL).deployment()
    paused |= {"metadata": metadata, "spec": paused["spec"] | {"paused": True}}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target.name}
    metric = {
        "type": "Object",
        "object": {
            "describedObject": reference,
            "metric": {"name": "demand"},
            "target": {"type": "AverageValue", "averageValue": str(TARGET)},
        },
    }
    fast = {"type": "Pods", "value": 1000, "periodSeconds": 1}
    behavior = {
        "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [fast]},
        "scaleDown": {"stabilizationWindowSeconds": int(window), "policies": [fast]},
    }
    spec = {"minReplicas": 1, "maxReplicas": 1000, "metrics": [metric], "behavior": behavior}
    autoscaler = Workload(target.name, QUEUE, level(INITIAL), "", spec, own=True).autoscaler()
    return [paused, autoscaler | {"metadata": metadata}]
