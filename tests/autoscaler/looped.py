"""A loop with all that an autoscaler may have, set by hand: floors, schedules, forecasts, costs of pods."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.interfaces import ForecastBound, Key
from adapter.bounds.schedule.documents import ScheduleDocument
from adapter.bounds.schedule.windows import Schedule
from adapter.bounds.timeline import Bounds, BoundsTimeline, Lead
from adapter.errors import KubernetesError, NotSyncedError
from adapter.kubernetes.write.writer import WriteKind
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, HPA_API_VERSION, HPA_KIND, FastPathAutoscaler
from adapter.model.autoscaling.floor import Floor
from adapter.model.objects.pods import COST_ANNOTATION
from adapter.model.timestamps import SECOND
from tests.support.controller import QUEUE, Bench, HandClock, NoForecasts, fpa
from tests.support.scaling import pods
from tests.support.schedules import schedule

OWN, HPA = Key("default", "web"), Key("default", "web", is_native=True)
NATIVE = "kube-controller-manager"
ON = Boost(BOOST, digest="one")


def hpa(mode: str, uid: str = "uid-1", **spec: Any) -> FastPathAutoscaler:
    plain = fpa(spec.pop("metrics", QUEUE), uid=uid, mode=mode, **({"behavior": {}} | spec))
    return msgspec.structs.replace(plain, api_version=HPA_API_VERSION, kind=HPA_KIND)


def window(begin: str, end: str, least: int = 12, **spec: Any) -> Schedule:
    return schedule({"name": "lunch", "from": begin, "to": end, "minReplicas": least}, **spec).schedule


class HandLoopClock(HandClock):
    """Both clocks, as the time of the event loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self.monotonic() + self.skew


class HandFloors:
    """What is published, in the order in which it was asked for; `fail` is why nothing more is.

    A write that the `gate` holds is superseded by `want`, as with a FloorWriter.
    """

    def __init__(self, bench: Bench) -> None:
        self.entries: dict[str, Floor] = {}
        self.fail: Exception | None = None
        self.gate: asyncio.Event | None = None
        self._bench = bench
        self._wants = 0

    async def publish(self, entry: Floor) -> None:
        wants = self._wants
        if self.gate is not None:
            await self.gate.wait()
        if self._wants != wants:
            raise KubernetesError(0, "Superseded", "a newer one has replaced it")
        if self.fail is not None:
            raise self.fail
        self._bench.server.log.append(f"floor {entry.replicas} is published")
        self.entries[entry.uid] = entry

    def want(self, uid: str, entry: Floor | None) -> None:
        self._wants += 1
        if entry is None:
            self.entries.pop(uid, None)
        else:
            self.entries[uid] = entry


class HandSchedules:
    """Schedules by autoscaler, set by hand."""

    def __init__(self) -> None:
        self.synced = True
        self.by_key: Mapping[Key, tuple[Schedule, ...]] = {}
        self.excess = ""

    def applied(self, key: Key) -> tuple[ScheduleDocument, ...]:
        return ()

    def bounds_of(self, key: Key, now: int, lead: Lead) -> tuple[Bounds, int | None]:
        if not self.synced:
            raise NotSyncedError("the bounds of its schedules are being computed")
        timeline, instant = BoundsTimeline(self.by_key.get(key, ()), excess=self.excess), now // SECOND
        return timeline.at(instant, lead), timeline.next_change(instant, lead) * SECOND

    def bounds_ahead(self, key: Key, now: int, until: int, lead: Lead) -> Sequence[tuple[int, Bounds]]:
        timeline = BoundsTimeline(self.by_key.get(key, ()))
        timeline.at(now // SECOND, lead)
        changes = timeline.changes(now // SECOND, until // SECOND, lead)
        return [(at * SECOND, bounds) for at, bounds in changes]


class HandForecasts(NoForecasts):
    """Minimums by autoscaler, set by hand."""

    def __init__(self, bench: Bench) -> None:
        self.by_key: dict[Key, int] = {}
        self._bench = bench

    def bound_of(self, key: Key) -> ForecastBound:
        until = self._bench.controller.loop.clock.time_of_day() + 3600 * SECOND
        return ForecastBound(self.by_key.get(key, 0), until)


class HandCosts:
    """The costs of pods as the API server has them, which the cache shows at once."""

    def __init__(self, bench: "LoopBench") -> None:
        self.bench = bench
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.ignores = False
        """Whether nothing comes of a write, as where another writer undoes it."""

    async def send(self, _: WriteKind, _method: str, path: str, content: bytes, **_options: str) -> None:
        annotations = msgspec.json.decode(content)["metadata"].get("annotations", {})
        text = annotations.get(COST_ANNOTATION)
        pod, cost = path.rpartition("/")[2], None if text is None else int(text)
        self.bench.server.log.append(f"cost of {pod} {'is taken back' if cost is None else cost}")
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        if not self.ignores:
            self.bench.change(pod, cost=cost)


class LoopBench(Bench):
    """A controller that boosts, has schedules and forecasts, and writes costs of pods."""

    def __init__(self) -> None:
        self.floors: HandFloors = HandFloors(self)
        self.schedules: HandSchedules = HandSchedules()  # type: ignore[assignment]  # a fake
        self.forecasting: HandForecasts = HandForecasts(self)
        self.writer = self.costs = HandCosts(self)
        super().__init__()

    def boost(
        self, boost: Boost = ON, replicas: int | None = None, published: Floor | None = None, **spec: Any
    ) -> None:
        """Put an HPA, and its target if `replicas` are given."""
        if replicas is not None:
            self.server.set("web", replicas)
            self.pods.pods["app=web"] = pods(20)
        self.controller.put(hpa(boost.mode, **spec), boost, published)

    def change(self, name: str, **facts: Any) -> None:
        """Change what is known of one pod."""
        listed = self.pods.pods["app=web"]
        self.pods.pods["app=web"] = [
            msgspec.structs.replace(pod, **facts) if pod.name == name else pod for pod in listed
        ]
