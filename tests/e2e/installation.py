"""Servers and scalers of one version or two on a real control plane, under load: upgrades, and when all die.

`Installation` has a fleet of FastPathAutoscalers, boosted HorizontalPodAutoscalers whose load steps too, and
values that stay the same, for which `MetricCallers` ask without a pause. The audits of the fleet and of the
world judge what is wrong. `Undecided` reads on the pages of all scalers how old the values are of which each
autoscaler was last decided.
"""

import asyncio
import contextlib
import itertools
import json
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from adapter.model.autoscaling import boost as model
from tests.e2e import fleet
from tests.e2e.fleet import Fleet, Sizes
from tests.support.objects import plain
from tests.support.waiting import running
from tests.world import watching
from tests.world.aggregation import GROUP_VERSIONS
from tests.world.clusters import Config
from tests.world.controlplane import ControlPlane
from tests.world.processes import THIS, Fastpath, Version
from tests.world.scalewrites import TOLERANCE, Place
from tests.world.workloads import BEHAVIOR, CLOCK, FLAGS, LOW, UNIT, Load, Workload, level
from tests.world.world import QUEUE, World, groups_of

LAG = 3
"""How many askings late the HPA controller sees totals, so that each raise comes before it knows why."""

FAULTS = (
    "writes_not_of_the_owner",
    "wrong_writes",
    "reverted_raises",
    "raises_without_a_floor",
    "floors_too_low",
    "wrong_answers",
)
"""What must not be, by the names of figures."""

_KINDS = (QUEUE, "object-average")
_STAYING = 5
_WITHDRAWN = 1.0
"""Seconds until no request is sent any more to a pod that ends, as with EndpointSlices and kube-proxy."""

_POLL = 0.25
_PAUSE = 0.02
_CALLERS = 4


class MetricCallers:
    """Ask through the API server for values that do not change, and for floors."""

    def __init__(self, world: World, staying: Sequence[Workload], boosted: Sequence[Workload]) -> None:
        custom = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{world.namespace}"
        external = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{world.namespace}"
        self._asked: list[tuple[str, int | None]] = []
        for each in staying:
            value = round(each.load(0.0))
            self._asked.append((f"{custom}/services/{each.name}/hits", value))
            self._asked.append((f"{external}/backlog?labelSelector=queue%3D{each.name}", value))
        # whether a floor is right depends on when: the front of the world judges it
        selector = f"{model.METRIC}?labelSelector={model.LABEL}%3D"
        self._asked += [(f"{external}/{selector}{each.name}", None) for each in boosted if each.way]
        self._world = world
        self.answers = 0
        self.wrong: list[str] = []
        self.errors: list[tuple[float, str]] = []
        self.latest = 0.0
        """The longest time without an answer, in seconds."""

    async def run(self) -> None:
        async with watching.connect(self._world.cluster) as session:
            await asyncio.gather(*(self._ask_all(session, number) for number in range(_CALLERS)))

    async def _ask_all(self, session: aiohttp.ClientSession, first: int) -> None:
        answered = CLOCK.monotonic()
        for path, value in itertools.islice(itertools.cycle(self._asked), first, None, _CALLERS):
            async with session.get(path) as response:
                said = await response.text()
            now = CLOCK.monotonic()
            if response.status != 200:
                self.errors.append((now, f"{response.status} {path}: {said[:200]}"))
            else:
                self.answers += 1
                self.latest, answered = max(self.latest, now - answered), now
                values = [each["value"] for each in json.loads(said)["items"]]
                if value is not None and values != [str(value)]:
                    self.wrong.append(f"{path}: {values} in place of {value}")
            await asyncio.sleep(_PAUSE)


class Undecided:
    """For how many seconds at most no decision on each autoscaler was made of newer values.

    A metric of pods has no age on the pages of earlier versions, so no autoscaler here has one.
    """

    def __init__(self, scalers: Fleet) -> None:
        self._scalers = scalers
        self.newest: dict[Place, float] = {}
        """When the values were sampled of which an autoscaler was last decided, by the monotonic clock."""
        self.longest: dict[Place, float] = {}
        self.begun = 0.0

    def begin(self) -> None:
        """Forget the longest times so far."""
        self.longest.clear()
        self.begun = CLOCK.monotonic()

    async def watch(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while True:
                await asyncio.gather(*(self._look(session, pod) for pod in [*self._scalers.pods.values()]))
                now = CLOCK.monotonic()
                for place, newest in self.newest.items():
                    self.longest[place] = max(self.longest.get(place, 0.0), now - max(newest, self.begun))
                await asyncio.sleep(_POLL)

    async def _look(self, session: aiohttp.ClientSession, pod: Fastpath) -> None:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):  # it starts, ends or is frozen
            now = CLOCK.monotonic()
            async with session.get(f"http://127.0.0.1:{pod.port}/debug/fastpath/autoscalers") as response:
                shown: Any = await response.json() if response.status == 200 else {"autoscalers": ()}
            for entry in shown["autoscalers"]:
                if entry["sampleAge"] is not None:
                    place = Place(entry["namespace"], entry["name"])
                    sampled = now - entry["sampleAge"]
                    self.newest[place] = max(self.newest.get(place, sampled), sampled)


@dataclass(slots=True, eq=False)
class Installation:
    world: World
    scalers: Fleet
    boosted: Sequence[Workload]
    callers: MetricCallers
    undecided: Undecided
    serving: tuple[Config, tuple[str, ...]] | None = None
    """The account of servers, and their flags."""
    numbers: Iterator[int] = field(default_factory=itertools.count)
    """Those of the next servers."""

    async def apply(self, version: Version) -> None:
        """Apply the kinds and rights of a version; what starts from now on is of that version."""
        kinds = version.manifests / "chart" / "files" / "crd"
        paths = (f"--filename={path}" for path in sorted(kinds.glob("fastpath*.yaml")))
        await self.world.cluster.kubectl(
            "apply", "--server-side", "--force-conflicts", "--validate=false", *paths
        )
        await self.world.admit_scaler(version=version)
        account, objects = await self.world.admit_adapter("external", "resource", version=version)
        flags = ("--serve-floors", *groups_of(objects), f"--prometheus-url={self.world.prometheus.url}")
        self.serving = account, (*flags, *FLAGS)
        self.scalers.versions = itertools.repeat(version)

    async def start_server(self, version: Version) -> Fastpath:
        """Start a server, and return it when it is ready."""
        assert self.serving is not None
        account, flags = self.serving
        server = Fastpath(
            account, self.world.directory, *flags, pod=f"server-{next(self.numbers)}", version=version
        )
        return await self.world.running.enter_async_context(server)

    async def withdraw(self, server: Fastpath) -> None:
        """End a server; requests go to it for a while."""

        async def leave_service() -> None:
            await asyncio.sleep(_WITHDRAWN)
            self.world.front.processes.remove(server)

        await asyncio.gather(server.end(), leave_service())

    async def roll(self, version: Version) -> None:
        """Replace all pods one after the other, as a Deployment does; return when the slices are settled."""
        await self.apply(version)
        for pod in [*self.scalers.pods]:
            await self.scalers.start()
            await self.scalers.end(pod)
        for server in [*self.world.front.processes]:
            self.world.front.processes.append(await self.start_server(version))
            await self.withdraw(server)
        await self.scalers.settled()

    async def kill(self) -> None:
        """Kill all programs at once."""
        processes = [*self.scalers.pods.values(), *self.world.front.processes]
        for each in processes:
            assert each.process is not None
            each.process.send_signal(signal.SIGKILL)
        await asyncio.gather(*(each.end(signal.SIGKILL) for each in processes))

    async def restart(self) -> float:
        """Start all programs again in their pods; return after how many seconds all are ready."""
        begun, processes = CLOCK.monotonic(), [*self.scalers.pods.values(), *self.world.front.processes]
        await asyncio.gather(*(each.start() for each in processes))
        return CLOCK.monotonic() - begun

    async def until_decided(self, since: float) -> dict[str, float]:
        """Return the seconds until the last of each kind was decided of values newer than `since`."""
        begun, taken = CLOCK.monotonic(), {}
        kinds = {"hpas": [self.world.place(each.name) for each in self.boosted]}
        kinds["autoscalers"] = [*self.scalers.demands.steps]
        newest = self.undecided.newest
        for kind, places in kinds.items():
            while any(newest.get(each, 0.0) <= since for each in places):  # noqa: ASYNC110 - `undecided` looks
                await asyncio.sleep(0.05)
            taken[kind] = CLOCK.monotonic() - begun
        return taken

    async def longest(self, work: Coroutine[Any, Any, object]) -> float:
        """Do something, and return for how long at most an autoscaler was undecided until all was settled."""
        await self.scalers.settled()
        self.undecided.begin()
        await work
        await self.scalers.settled()
        return max(self.undecided.longest.values())

    async def crash(self, pod: str) -> None:
        """Kill a scaler, and start another one in its place."""
        await self.scalers.end(pod, signal.SIGKILL)
        await self.scalers.start()

    async def upgrade(self, old: Version, new: Version) -> dict[str, float]:
        """Replace all pods by those of the same version, share the slices between two versions, with a crash
        of each, upgrade, and go back; return for how long an autoscaler was undecided at most.
        """
        figures = {"same_version": await self.longest(self.roll(old))}
        self.scalers.versions = itertools.cycle((new, old))
        figures["both_versions"] = await self.longest(self.scalers.start())
        *_, newer = self.scalers.pods
        figures["old_crashes"] = await self.longest(self.crash(next(iter(self.scalers.pods))))
        figures["new_crashes"] = await self.longest(self.crash(newer))
        figures["upgrade"] = await self.longest(self.roll(new))
        figures["way_back"] = await self.longest(self.roll(old))
        return {f"{name}_undecided_seconds": seconds for name, seconds in figures.items()}

    async def die(self, *times: float) -> dict[str, float]:
        """Kill all pods at once, and start them again after so many seconds, for each of these times.

        Return what changed meanwhile, and how long it took from then on until the pods were ready, until all
        was decided again, and until a namespace was gone that had begun to end meanwhile.
        """
        figures: dict[str, float] = {}
        for seconds in times:
            found = await self._die(seconds)
            figures |= {f"dead_{seconds:g}s_{name}": value for name, value in found.items()}
        return figures

    async def _die(self, seconds: float) -> dict[str, float]:
        cluster, space = self.world.cluster, f"ending-{seconds:g}"
        await cluster.create(plain("Namespace", space), plain("ConfigMap", "something", space))
        await self.kill()
        begun, killed, counts = CLOCK.monotonic(), CLOCK.wall(), self.scalers.counts()
        paths = [f"apiservice/{name}" for name in GROUP_VERSIONS]
        waiting = ("wait", "--for=condition=Available=False", f"--timeout={seconds:g}s", *paths)
        await cluster.run(cluster.admin_kubeconfig, *waiting)
        unavailable = CLOCK.monotonic() - begun
        await cluster.kubectl("delete", "namespace", space, "--wait=false")
        await asyncio.sleep(max(0.0, begun + seconds - CLOCK.monotonic()))
        moved = [place for place, count in self.scalers.counts().items() if counts[place] != count]
        native = [write for each in self.boosted for write in self.world.audit.of(each.name, since=killed)]
        begun = CLOCK.monotonic()
        async with asyncio.TaskGroup() as group:
            ready = group.create_task(self.restart())
            decided = group.create_task(self.until_decided(begun))
            await cluster.kubectl("wait", "--for=delete", f"namespace/{space}", "--timeout=120s")
            ended = CLOCK.monotonic() - begun
        await self.scalers.settled()
        return {f"{kind}_decided_seconds": taken for kind, taken in decided.result().items()} | {
            "ready_seconds": ready.result(),
            "unavailable_seconds": unavailable,
            "namespace_gone_seconds": ended,
            "autoscalers_moved": len(moved),
            "hpas_raised": sum(write.after > write.before for write in native),
            "hpas_lowered": sum(write.after < write.before for write in native),
        }

    def faults(self) -> dict[str, Sequence[object]]:
        """Return all that is wrong, by kind.

        While the machine is busy, a floor may be published for seconds before its raise. What the HPA
        controller writes in between takes back nothing.
        """
        audit = self.world.audit
        reverted = [each for each in audit.counted if each.write.before >= each.floor * (1 - TOLERANCE)]
        found = (
            self.scalers.doubles(),
            self.scalers.wrong(),
            reverted,
            audit.unpublished,
            self.world.front.stale,
            self.callers.wrong,
        )
        return dict(zip(FAULTS, found, strict=True))

    def totals(self) -> dict[str, float]:
        """Return how much was written and answered."""
        audit, callers = self.scalers.audit, self.callers
        return {
            "writes": sum(len(audit.of(place)) for place in self.scalers.demands.steps),
            "boosted_raises": sum(len(self.world.audit.raises(each.name)) for each in self.boosted),
            "answers": callers.answers,
            "errors": len(callers.errors),
            "longest_without_answer_seconds": callers.latest,
        }


def _stepping(number: int) -> Load:
    """Return a load that rises in steps and falls, at other times than that of another number."""
    counts = (2, 3, 5, 8, 11, 6, 2)
    return lambda after: (
        LOW if after < 0 else (counts[int(after / 6 + number * 1.7) % len(counts)] - 0.5) * UNIT
    )


@contextlib.asynccontextmanager
async def opened(
    world: World, plane: ControlPlane, sizes: Sizes, boosted: int, version: Version = THIS
) -> AsyncIterator[Installation]:
    """Make all autoscalers, two servers and three scalers; yield them when the slices have owners."""
    spec = {"behavior": BEHAVIOR}
    hpas = [
        Workload(
            f"boosted-{number}",
            _KINDS[number % len(_KINDS)],
            _stepping(number),
            (model.EXTERNAL, model.OBJECT)[number % 2],
            spec,
        )
        for number in range(boosted)
    ]
    staying = [Workload(f"staying-{number}", QUEUE, level(number + 2), "") for number in range(_STAYING)]
    world.declare(hpas)
    world.declare(staying, autoscaled=False)
    async with fleet.opened(world, plane, sizes, seed=1) as scalers:
        scalers.rules = world.rules.replace("rules:\n", fleet.RULES.lstrip(), 1)
        (world.directory / "rules.yaml").write_text(world.rules)
        made = Installation(world, scalers, hpas, MetricCallers(world, staying, hpas), Undecided(scalers))
        await made.apply(version)
        _, objects = await world.admit_adapter("external", "resource", version=version)
        await world.create()
        world.processes = [await made.start_server(version) for _ in range(2)]
        await world.register(objects, lag=LAG)
        for _ in range(3):
            await scalers.start()
        await scalers.settled()
        await world.settled([each.name for each in hpas])
        async with running(made.undecided.watch(), made.callers.run()):
            world.begin()
            yield made
