"""What the next owner of a slice takes over of the floors that were published before, and what it drops."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.actuator import ClusterActuator
from adapter.autoscaler.interfaces import Key
from adapter.compose import floors as serving
from adapter.compose.scaler import Scaler
from adapter.config.options import Options
from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.cache.autoscalers import keep_hpa
from adapter.kubernetes.codec import Unreadable
from adapter.model.autoscaling import boost as boosting
from adapter.model.autoscaling import hpa as model
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.floor import Demotion, Floor
from adapter.model.autoscaling.hpa import encode_scalar
from adapter.model.quantity import read
from adapter.model.timestamps import SECOND, FineInstant
from adapter.telemetry.metrics import Monitoring
from tests.autoscaler.test_boost import hpa as native
from tests.compose.test_scaler import runtime
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
        self.works: set[Key] = set()
        self.loop = SimpleNamespace(touch=lambda _: None)

    def put(self, autoscaler: Any, boost: Any = None, published: Any = None) -> None:
        key = Key.of(autoscaler)
        if key not in self.works:
            self.put_with.append((autoscaler.metadata.name, published))
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


@pytest.fixture
def scaler() -> Any:
    nothing: Any = None
    own = runtime(FakeClock(), Monitoring())
    scaler = Scaler(Options(leader_elect=False), own, nothing, lambda _: nothing, random=lambda: 0.5)
    controller: Any = Controller()
    scaler._registry.begin(SLICE, controller)
    return scaler


def put_with(scaler: Any) -> list[tuple[str, Floor | None]]:
    """Return the HPAs that were put, each with the floor that was taken over."""
    found: list[tuple[str, Floor | None]] = scaler._registry.find_controller("default").put_with
    return found


def now(scaler: Any) -> int:
    return int(scaler._runtime.clock.wall() * SECOND)


def entry(scaler: Any, name: str, until: int, seen: str = "5", **more: Any) -> Floor:
    return Floor(
        "default", name, f"uid-{name}", 8, FineInstant(now(scaler) + until * SECOND), seen=seen, **more
    )


async def test_what_was_adopted_is_adopted_once(scaler: Any) -> None:
    """When the annotation returns, neither floor nor demotion of the start of the term returns with it."""
    scaler.rivals.hpas.put(hpa("10"))
    await scaler._boosted_hpas.adopt_floors(SLICE, Floors({"uid-web": entry(scaler, "web", 500)}))
    assert [each[1] is not None for each in put_with(scaler)] == [True]
    scaler.rivals.hpas.put(hpa("11", boosted=False))
    scaler.rivals.hpas.put(hpa("12"))
    assert [each[1] is not None for each in put_with(scaler)] == [True, False]


async def test_a_slice_is_taken_over_alone_and_again_after_its_end(
    scaler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[str] = []
    note = scaler._registry.note

    def record(autoscaler: Any) -> Any:
        noted.append(autoscaler.metadata.namespace)
        return note(autoscaler)

    others: Any = Controller()
    scaler._registry.begin(slices.slice_of("shop"), others)
    scaler.rivals.hpas.put(hpa("10"))
    scaler.rivals.hpas.put(hpa("10", namespace="shop"))
    monkeypatch.setattr(scaler._registry, "note", record)
    await scaler._boosted_hpas.adopt_floors(SLICE, Floors({}))
    assert (put_with(scaler), others.put_with) == ([("web", None)], [])
    assert noted == ["default"]
    await scaler._boosted_hpas.adopt_floors(slices.slice_of("shop"), Floors({}))
    assert others.put_with == [("web", None)]

    scaler._boosted_hpas.end(SLICE)
    scaler.rivals.hpas.put(hpa("11", name="new"))
    scaler.rivals.hpas.put(hpa("11", name="new", namespace="shop"))
    assert (len(put_with(scaler)), len(others.put_with)) == (1, 2)


async def test_entries_of_who_is_gone_do_not_stay(scaler: Any) -> None:
    scaler.rivals.hpas.put(hpa("10"))
    scaler.rivals.hpas.put(hpa("10", name="left", boosted=False))
    scaler.rivals.hpas.put(hpa("3", name="behind", boosted=False))
    entries = {
        "uid-web": entry(scaler, "web", 500),
        "uid-left": entry(scaler, "left", 500),
        "uid-behind": entry(scaler, "behind", 500),
        "uid-gone": entry(scaler, "gone", -1),
        "uid-demoted": entry(
            scaler, "demoted", -1, demoted=Demotion(FineInstant(now(scaler) - 1), "argocd", "one")
        ),
        "uid-unknown": entry(scaler, "unknown", 500),
    }
    floors = Floors(entries)
    await scaler._boosted_hpas.adopt_floors(SLICE, floors)
    assert floors.wanted == {"uid-left": None, "uid-gone": None, "uid-demoted": None}


async def test_an_hpa_that_cannot_be_read_keeps_its_boost_and_its_floor(scaler: Any) -> None:
    hpas, controller = scaler.rivals.hpas, scaler._registry.find_controller("default")
    reference = {"apiVersion": "apps/v1", "kind": "Deployment"}

    def lose(name: str, target: str) -> None:
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "11"}
        spec = {"scaleTargetRef": {**reference, "name": target}}
        raw = msgspec.json.encode({"metadata": metadata, "spec": spec})
        hpas.lose(Unreadable("default", name, "11", raw, "ValueError: no"))

    hpas.put(hpa("10"))
    lose("never-read", "other")
    floors = Floors({f"uid-{name}": entry(scaler, name, 500) for name in ("web", "never-read")})
    await scaler._boosted_hpas.adopt_floors(SLICE, floors)
    lose("web", "web")
    key = Key("default", "web", is_native=True)
    assert controller.works == {key}
    assert hpas.find("default", "web").asked is not None
    assert floors.wanted == {}
    problem = scaler._runtime.problems.active()["annotation", "default/web"]
    assert problem == "cannot be read: ValueError: no"
    lose("web", "another")
    assert controller.works == set()


async def test_a_fence_that_is_shut_for_a_moment_at_the_start(scaler: Any) -> None:
    scaler.rivals.hpas.put(hpa("10"))
    async with asyncio.timeout(3):
        await scaler._boosted_hpas.adopt_floors(SLICE, Floors({}, NotLeadingError()))
    assert len(put_with(scaler)) == 1


async def test_floors_that_cannot_be_read_are_a_fault_until_the_slice_ends(scaler: Any) -> None:
    refused = Floors({}, KubernetesError(403, "Forbidden", "no"))
    adopting = asyncio.create_task(scaler._boosted_hpas.adopt_floors(SLICE, refused))
    await asyncio.sleep(0)
    assert scaler._runtime.problems.active() == {("floors", f"slice {SLICE}"): "no"}
    adopting.cancel()
    scaler._boosted_hpas.end(SLICE)
    assert scaler._runtime.problems.active() == {}


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


def test_a_second_handshake_that_is_wrong_is_a_fault() -> None:
    """Value multiplies the floor by the pods that are ready; averageValue 100m makes ten of each."""
    right = boosting.handshake("web", "external")
    assert right.external is not None
    wrong = msgspec.structs.replace(
        right,
        external=msgspec.structs.replace(
            right.external, target=model.MetricTarget("AverageValue", average_value=read("100m"))
        ),
    )
    cpu = model.MetricSpec(
        "Resource",
        resource=model.ResourceMetricSource("cpu", model.MetricTarget("Utilization", average_utilization=5)),
    )
    spec = model.HorizontalPodAutoscalerSpec(metrics=(cpu, right, wrong))
    assert not boosting.check_handshake("web", spec).holds


def test_a_status_of_ours_is_not_forgotten_with_an_hpa_of_its_name() -> None:
    forgotten: list[Any] = []

    class Statuses:
        def forget(self, *key: str) -> None:
            forgotten.append(key)

    nothing: Any = None
    statuses: Any = Statuses()
    ClusterActuator(nothing, statuses, nothing).forget(native("Boost"))
    assert forgotten == []


async def test_a_defect_at_the_start_of_a_term_delays_boosted_hpas_alone(scaler: Any) -> None:
    scaler.rivals.hpas.put(hpa("10"))
    async with asyncio.timeout(3):
        await scaler._boosted_hpas.adopt_floors(SLICE, Floors({}, ZeroDivisionError()))
    assert len(put_with(scaler)) == 1
