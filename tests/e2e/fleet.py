"""Several scalers on a real control plane under stepping load: they come, crash, freeze, and are replaced.

`turns` lets all of that happen, one after the other. `ScalerAudit` judges what was written meanwhile, from
the audit log of the API server. Values come from a real Prometheus. The Deployments are paused, so they have
no pods: their number of replicas is all that counts here.
"""

import asyncio
import contextlib
import datetime as dt
import itertools
import json
import math
import random
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import aiohttp

from adapter.compose.clock import SystemClock
from adapter.kubernetes.credentials import pod_of
from adapter.model.autoscaling import slices
from tests.e2e import test_scaler
from tests.e2e.aggregation import NAMESPACE
from tests.e2e.clusters import Config, Document
from tests.e2e.controlplane import ControlPlane
from tests.e2e.test_aggregation import deployment
from tests.e2e.test_scaler import Scene, admit, scaling
from tests.support import tools
from tests.support.remotewrite import Written
from tests.support.scaleraudit import GROUP, IN_FLIGHT, Reaction, ScalerAudit, Step
from tests.support.scalewrites import Place
from tests.support.waiting import until
from tests.world import watching

INITIAL = 1
"""The replicas of all targets at the beginning."""

TARGET = 10
_PERIOD = 0.5
_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAMESPACE}-scaler"
_CLOCK = SystemClock()
_SETTLE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a fleet is; times in seconds.

    `step` is the time between two steps of one load, `window` that of stabilization, `quiet` that after each
    turn, and `interval` that between two samples.
    """

    autoscalers: int
    namespaces: int
    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0
    step: float = 20.0
    window: float = 20.0
    freeze: float = 60.0
    quiet: float = 20.0
    interval: float = 0.5

    @property
    def flags(self) -> Sequence[str]:
        return (
            f"--leader-elect-lease-duration={self.lease:g}s",
            f"--leader-elect-renew-deadline={self.renew:g}s",
            f"--leader-elect-retry-period={self.retry:g}s",
            "--metrics-relist-interval=1m",
            "--journal-entries=1000",
        )


class Turn(NamedTuple):
    """A time in which something happened; `lost` are the pods that could not hand over."""

    name: str
    begin: float
    end: float
    lost: frozenset[str] = frozenset()


class Demands:
    """What each autoscaler needs. Prometheus is told every `interval` seconds, of a part twice a second."""

    def __init__(self, targets: Sequence[Place], step: float, seed: int, interval: float) -> None:
        dice = random.Random(seed)
        self._parts = max(1, round(interval / _PERIOD))
        self.steps: dict[Place, list[Step]] = {target: [] for target in targets}
        self._plans = {target: _plan(random.Random(dice.random()), step) for target in targets}
        self._due = dict.fromkeys(targets, 0.0)
        self._labels = {
            target: {"__name__": "demand", "namespace": target.namespace, "deployment": target.name}
            for target in targets
        }
        self.is_stepping = True

    async def keep(self, scene: Scene) -> None:
        """Step the loads until cancelled."""
        for turn in itertools.count():
            now = _CLOCK.wall()
            if self.is_stepping:
                self._step(now)
            samples = [
                Written(labels, self.steps[target][-1].replicas * TARGET, now)
                for target, labels in itertools.islice(
                    self._labels.items(), turn % self._parts, None, self._parts
                )
            ]
            await asyncio.to_thread(scene.prometheus.write, *samples)
            await asyncio.sleep(max(0.0, now + _PERIOD - _CLOCK.wall()))

    def _step(self, now: float) -> None:
        for target, plan in self._plans.items():
            if self._due[target] <= now:
                count, seconds = next(plan)
                self.steps[target].append(Step(now, count))
                self._due[target] = now + seconds


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
class _Pod:
    process: Process
    stack: contextlib.AsyncExitStack
    port: int


@dataclass(slots=True, eq=False)
class Fleet:
    scene: Scene
    plane: ControlPlane
    sizes: Sizes
    demands: Demands
    audit: ScalerAudit
    pods: dict[str, _Pod] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)
    frozen_at: dict[str, float] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    journals: dict[tuple[str, Place], tuple[float, list[tuple[int, int]]]] = field(default_factory=dict)
    """What was written as each pod told it last, and before when that is complete."""
    decided: set[tuple[Place, str, float]] = field(default_factory=set)
    """When a pod first decided an autoscaler after it took its slice."""
    started: int = 0

    # -- pods ------------------------------------------------------------------------------------------------

    async def start(self) -> str:
        """Start a scaler, and return its pod when it is ready."""
        pod, port = f"scaler-{self.started}", tools.free_port()
        self.started += 1
        kubeconfig = self.scene.directory / f"{pod}-user.kubeconfig"
        await asyncio.to_thread(self.plane.kubeconfig, kubeconfig, _ACCOUNT, GROUP + pod)
        stack = contextlib.AsyncExitStack()
        address = f"127.0.0.1:{port}"
        process = await stack.enter_async_context(
            scaling(self.scene, Config(kubeconfig), *self.sizes.flags, f"--local-address={address}", pod=pod)
        )
        self.pods[pod] = _Pod(process, stack, port)
        async with aiohttp.ClientSession(f"http://{address}") as session:
            await _until_ready(session)
        return pod

    async def end(self, pod: str) -> None:
        """End a scaler in order."""
        await self.pods.pop(pod).stack.aclose()

    async def kill(self, pod: str) -> None:
        self.pods[pod].process.kill()
        await self.end(pod)

    def freeze(self, pod: str) -> None:
        self.frozen.add(pod)
        self.frozen_at[pod] = _CLOCK.wall()
        self.pods[pod].process.send_signal(signal.SIGSTOP)

    def thaw(self, pod: str) -> None:
        self.frozen.discard(pod)
        self.pods[pod].process.send_signal(signal.SIGCONT)

    async def close(self) -> None:
        for pod in [*self.frozen]:
            self.thaw(pod)
        for pod in [*self.pods]:
            await self.end(pod)

    async def settled(self) -> None:
        """Return when the pods that run own all slices, in fair shares."""
        running = self.pods.keys() - self.frozen

        def is_fair() -> bool:
            self.audit.read()
            shares = self.audit.shares()
            return (
                shares.keys() == running
                and shares.total() == slices.COUNT
                and max(shares.values()) - min(shares.values()) <= 1
            )

        while not is_fair():  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.2)

    # -- turns -----------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def turn(self, name: str, *lost: str) -> AsyncIterator[None]:
        """Note a turn: what the block does, until the slices are settled and some quiet time has passed."""
        begin = _CLOCK.wall()
        async with asyncio.timeout(_SETTLE_SECONDS + self.sizes.freeze):
            yield
            await self.settled()
        await asyncio.sleep(self.sizes.quiet)
        self.turns.append(Turn(name, begin, _CLOCK.wall(), frozenset(lost)))
        await self.read_journals()

    async def read_journals(self) -> None:
        for pod in self.pods.keys() - self.frozen:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{self.pods[pod].port}") as session:
                for target in self.demands.steps:
                    if pod_of(self.audit.owner(target.namespace)) == pod:
                        await self._read_journal(session, pod, target)

    async def _read_journal(self, session: aiohttp.ClientSession, pod: str, target: Place) -> None:
        path, begun = f"/debug/fastpath/autoscalers/{target.namespace}/{target.name}", _CLOCK.wall()
        async with session.get(path) as response:
            if response.status != 200:
                return
            shown = json.loads(await response.text())
        if shown["decidedSince"] is not None:
            since = dt.datetime.fromisoformat(shown["decidedSince"]).timestamp()
            self.decided.add((target, pod, since))
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
                target, pod, journal, since, INITIAL, self.frozen_at.get(pod, math.inf)
            )
        ]

    def wrong(self) -> list[str]:
        window = self.sizes.window
        return [
            fault
            for target, steps in self.demands.steps.items()
            for fault in self.audit.wrong(target, steps, INITIAL, window)
        ]

    def reactions(self) -> list[Reaction]:
        end = _CLOCK.wall()
        return [
            reaction
            for target, steps in self.demands.steps.items()
            for reaction in self.audit.reactions(target, steps, INITIAL, end)
        ]

    def undecided(self, turn: Turn) -> list[float]:
        """Return for how long autoscalers were undecided that pods have handed over in a turn.

        That is the time from the release of the slice to the first decision of its next owner.
        """
        moved = (
            (self.audit.released(target.namespace, pod, since), since) for target, pod, since in self.decided
        )
        return [
            since - released.time
            for released, since in moved
            if released is not None
            and turn.begin <= since < turn.end
            and pod_of(released.holder) not in turn.lost
        ]

    async def follow(self) -> None:
        """Return when every target has the replicas that it needs; the loads step no more."""
        self.demands.is_stepping = False

        def remaining() -> list[Place]:
            self.audit.read()
            return [
                target
                for target, steps in self.demands.steps.items()
                if self.audit.count(target, INITIAL) != steps[-1].replicas
            ]

        await until(lambda: not remaining(), 30 + 2 * self.sizes.window)


async def _until_ready(session: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(_SETTLE_SECONDS):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get("/readyz") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def opened(scene: Scene, plane: ControlPlane, sizes: Sizes, seed: int) -> AsyncIterator[Fleet]:
    """Make the autoscalers and their load; yield a fleet without pods, and end all that it starts."""
    await admit(scene)
    spaces = [f"tenant-{number:02}" for number in range(sizes.namespaces)]
    targets = [Place(spaces[number % len(spaces)], f"web-{number:03}") for number in range(sizes.autoscalers)]
    demands = Demands(targets, sizes.step, seed, sizes.interval)
    fleet = Fleet(scene, plane, sizes, demands, ScalerAudit(plane.audit_log, NAMESPACE))
    async with contextlib.AsyncExitStack() as stack:
        await scene.cluster.create(
            *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in spaces)
        )
        stack.push_async_callback(
            scene.cluster.kubectl, "delete", "namespace", *spaces, "--wait=false", "--ignore-not-found"
        )
        session = await stack.enter_async_context(watching.connect(scene.cluster))
        deployments = watching.follow(
            session, "/apis/apps/v1/deployments", lambda _, found: fleet.audit.saw_target(found)
        )
        tasks = [asyncio.create_task(work) for work in (demands.keep(scene), deployments)]
        stack.push_async_callback(asyncio.wait, tasks)
        for task in tasks:
            stack.callback(task.cancel)
        documents = [each for target in targets for each in _workload(scene, target, sizes.window)]
        await scene.cluster.create(*documents)
        stack.push_async_callback(fleet.close)
        yield fleet
        assert [task.exception() for task in tasks if task.done()] == []


async def turns(fleet: Fleet) -> None:
    """One scaler becomes three, one crashes and one freezes; all are replaced, and two remain."""
    sizes = fleet.sizes
    async with fleet.turn("alone"):
        await fleet.start()
    async with fleet.turn("join"):
        await asyncio.gather(fleet.start(), fleet.start())
    victim = [*fleet.pods][-1]
    async with fleet.turn("kill", victim):
        await fleet.kill(victim)
        await fleet.start()
    victim = [*fleet.pods][1]
    async with fleet.turn("freeze", victim):
        fleet.freeze(victim)
        await asyncio.sleep(sizes.freeze)
    async with fleet.turn("thaw"):
        fleet.thaw(victim)
    async with fleet.turn("update"):
        for pod in [*fleet.pods]:
            await fleet.start()
            await fleet.end(pod)
            # on this machine the start of a process takes the processor from the others
            await fleet.settled()
            await fleet.read_journals()
    async with fleet.turn("leave"):
        await fleet.end(next(iter(fleet.pods)))
    await fleet.follow()


def _workload(scene: Scene, target: Place, window: float) -> list[Document]:
    metadata = {"name": target.name, "namespace": target.namespace}
    workload = deployment(scene.cluster)
    workload |= {"metadata": metadata, "spec": workload["spec"] | {"paused": True, "replicas": INITIAL}}
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
    autoscaler = test_scaler.autoscaler(
        scene.cluster, metric, scaleTargetRef=reference, maxReplicas=1000, behavior=behavior
    )
    return [workload, autoscaler | {"metadata": metadata}]
