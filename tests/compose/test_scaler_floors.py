"""What the next owner of a slice takes over of the floors that were published before, and what it drops."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import msgspec
import pytest

from adapter.autoscaler.controller.actuator import Actuator
from adapter.autoscaler.controller.autoscaler_sources import BoostedHPAs
from adapter.autoscaler.controller.changes import Changes
from adapter.autoscaler.controller.registry import AutoscalerRegistry
from adapter.autoscaler.interfaces import Key
from adapter.compose import floors as serving
from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.cache.autoscalers import ScaleConflicts, keep_hpa
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.codec import Unreadable
from adapter.model.autoscaling import boost as boosting
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.floor import Demotion, Floor
from adapter.model.autoscaling.hpa import encode_scalar
from adapter.model.timestamps import SECOND, FineInstant
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.autoscaler.looped import hpa as native
from tests.support.clock import FakeClock

SLICE = slices.slice_of("default")


def hpa(
    version: str, *, boosted: bool = True, name: str = "web", namespace: str = "default", **status: int
) -> Any:
    target = {"type": "Utilization", "averageUtilization": 5}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    plain = msgspec.json.decode(
        msgspec.json.encode(msgspec.to_builtins(boosting.handshake(name, "external"), enc_hook=encode_scalar))
    )
    document = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "resourceVersion": version,
            "annotations": {"fastpath.io/mode": "boost"} if boosted else {},
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "maxReplicas": 20,
            "metrics": [*metrics, plain],
        },
        "status": {"currentReplicas": 4, "desiredReplicas": 4, **status},
    }
    return keep_hpa(msgspec.Raw(msgspec.json.encode(document)))


class Controller:
    def __init__(self) -> None:
        self.put_with: list[tuple[str, Floor | None]] = []
        self.put_in: list[str] = []
        self.works: set[Key] = set()
        self.loop = SimpleNamespace(touch=lambda _: None)

    def put(self, autoscaler: Any, boost: Any = None, published: Any = None) -> None:
        key = Key.of(autoscaler)
        if key not in self.works:
            self.put_with.append((autoscaler.metadata.name, published))
            self.put_in.append(autoscaler.metadata.namespace)
        self.works.add(key)

    def remove(self, key: Key) -> None:
        self.works.discard(key)


class Floors:
    def __init__(self, entries: dict[str, Floor], *failures: Exception) -> None:
        self.entries = entries
        self.failures = list(failures)
        self.wanted: dict[str, Any] = {}

    async def start(self) -> dict[str, Floor]:
        if self.failures:
            raise self.failures.pop(0)
        return self.entries

    def want(self, uid: str, entry: Any) -> None:
        self.wanted[uid] = entry


class AdoptedFloors:
    """Boosted HPAs as a cache has them, and the controller of the slice of `default`."""

    def __init__(self) -> None:
        self.clock, nothing = FakeClock(), cast("Any", None)
        monitoring = Monitoring()
        self.problems = ProblemLog(monitoring, self.clock)
        context = ReflectorContext(nothing, self.clock, monitoring, self.problems, lambda: 0.0)
        rivals, scrapes = ScaleConflicts(context), cast("Any", Mock())
        self.hpas = rivals.hpas
        self.registry = AutoscalerRegistry(rivals, scrapes, Changes())
        self.boosted = BoostedHPAs(self.registry, self.hpas, self.clock, self.problems, 15 * SECOND)
        self.hpas.followers.append(self.boosted.changed)
        self.controller = Controller()
        self.registry.controller = cast("Any", self.controller)  # it has what a registry calls

    async def adopt(self, floors: "Floors", number: int = SLICE) -> None:
        adopting: Any = floors
        await self.boosted.adopt_floors(number, adopting)

    def now(self) -> int:
        return int(self.clock.wall() * SECOND)

    def entry(self, name: str, until: int, seen: str = "5", **more: Any) -> Floor:
        end = FineInstant(self.now() + until * SECOND)
        return Floor("default", name, f"uid-{name}", 8, end, seen=seen, **more)


@pytest.fixture
def bench() -> AdoptedFloors:
    return AdoptedFloors()


async def test_what_was_adopted_is_adopted_once(bench: AdoptedFloors) -> None:
    """When the annotation returns, neither floor nor demotion of the start of the term returns with it."""
    bench.hpas.put(hpa("10"))
    await bench.adopt(Floors({"uid-web": bench.entry("web", 500)}))
    assert [each[1] is not None for each in bench.controller.put_with] == [True]
    bench.hpas.put(hpa("11", boosted=False))
    bench.hpas.put(hpa("12"))
    assert [each[1] is not None for each in bench.controller.put_with] == [True, False]


async def test_a_slice_is_taken_over_alone_and_again_after_its_end(bench: AdoptedFloors) -> None:
    for namespace in ("default", "shop"):
        bench.hpas.put(hpa("10", namespace=namespace))
    await bench.adopt(Floors({}))
    assert bench.controller.put_in == ["default"]
    await bench.adopt(Floors({}), slices.slice_of("shop"))
    assert bench.controller.put_in == ["default", "shop"]

    bench.boosted.end(SLICE)
    for namespace in ("default", "shop"):
        bench.hpas.put(hpa("11", name="new", namespace=namespace))
    assert bench.controller.put_in == ["default", "shop", "shop"]


async def test_entries_of_who_is_gone_do_not_stay(bench: AdoptedFloors) -> None:
    bench.hpas.put(hpa("10"))
    bench.hpas.put(hpa("10", name="left", boosted=False))
    bench.hpas.put(hpa("3", name="behind", boosted=False))
    entries = {
        "uid-web": bench.entry("web", 500),
        "uid-left": bench.entry("left", 500),
        "uid-behind": bench.entry("behind", 500),
        "uid-gone": bench.entry("gone", -1),
        "uid-demoted": bench.entry(
            "demoted", -1, demoted=Demotion(FineInstant(bench.now() - 1), "argocd", "one")
        ),
        "uid-unknown": bench.entry("unknown", 500),
    }
    floors = Floors(entries)
    await bench.adopt(floors)
    assert floors.wanted == {"uid-left": None, "uid-gone": None, "uid-demoted": None}


async def test_an_hpa_that_cannot_be_read_keeps_its_boost_and_its_floor(bench: AdoptedFloors) -> None:
    hpas = bench.hpas
    reference = {"apiVersion": "apps/v1", "kind": "Deployment"}

    def lose(name: str, target: str) -> None:
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "11"}
        spec = {"scaleTargetRef": {**reference, "name": target}}
        raw = msgspec.json.encode({"metadata": metadata, "spec": spec})
        hpas.lose(Unreadable("default", name, "11", raw, "ValueError: no"))

    hpas.put(hpa("10"))
    lose("never-read", "other")
    floors = Floors({f"uid-{name}": bench.entry(name, 500) for name in ("web", "never-read")})
    await bench.adopt(floors)
    lose("web", "web")
    key = Key("default", "web", is_native=True)
    assert bench.controller.works == {key}
    found = hpas.find("default", "web")
    assert found is not None
    assert found.asked is not None
    assert floors.wanted == {}
    problem = bench.problems.active()["annotation", "default/web"]
    assert problem == "cannot be read: ValueError: no"
    lose("web", "another")
    assert bench.controller.works == set()


async def test_a_fence_that_is_shut_for_a_moment_at_the_start(bench: AdoptedFloors) -> None:
    bench.hpas.put(hpa("10"))
    async with asyncio.timeout(3):
        await bench.adopt(Floors({}, NotLeadingError()))
    assert len(bench.controller.put_with) == 1


async def test_floors_that_cannot_be_read_are_a_fault_until_the_slice_ends(bench: AdoptedFloors) -> None:
    refused = Floors({}, KubernetesError(403, "Forbidden", "no"))
    adopting = asyncio.create_task(bench.adopt(refused))
    await asyncio.sleep(0)
    assert bench.problems.active() == {("floors", f"slice {SLICE}"): "no"}
    adopting.cancel()
    bench.boosted.end(SLICE)
    assert bench.problems.active() == {}


def test_an_hpa_that_may_only_be_advised_is_served_no_floor() -> None:
    boosted = hpa("10")
    owned = msgspec.structs.replace(
        boosted, asked=msgspec.structs.replace(boosted.asked, owner="ScaledObject web")
    )
    for one, boosts in ((boosted, True), (owned, False)):
        hpas: Any = SimpleNamespace(synced=True, find=lambda *_, found=one: found)
        served = serving._find_autoscaler(hpas, "default", "web")
        assert served is not None
        assert served.boosts is boosts


def test_a_status_from_before_its_own_shrink_shows_nothing() -> None:
    """Native: 20 -> 5 was written, its status still says currentReplicas 20."""
    asked = hpa("10", currentReplicas=20, desiredReplicas=5).asked
    assert asked.shown == 5


def test_a_status_of_ours_is_not_forgotten_with_an_hpa_of_its_name() -> None:
    forgotten: list[Any] = []

    class Statuses:
        def forget(self, *key: str) -> None:
            forgotten.append(key)

    nothing: Any = Mock()
    statuses: Any = Statuses()
    Actuator(nothing, statuses, nothing).forget(native("Boost"))
    assert forgotten == []


async def test_a_defect_at_the_start_of_a_term_delays_boosted_hpas_alone(bench: AdoptedFloors) -> None:
    bench.hpas.put(hpa("10"))
    async with asyncio.timeout(3):
        await bench.adopt(Floors({}, ZeroDivisionError()))
    assert len(bench.controller.put_with) == 1
